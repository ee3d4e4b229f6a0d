// Owns the list of what lathe can do: each takes the options and returns what to print.
#pragma once

#include <string>

#include "examples/lathe/options.h"

namespace lathe::tool {

struct Output {
  std::string text;  // for stdout
  std::string word;  // for stderr
  bool good = true;  // false: the exit status is 1
};

Result<Output> cache_stat(const Options& options);
Result<Output> cache_list(const Options& options);
Result<Output> cache_show(const Options& options);
Result<Output> cache_trim(const Options& options);
Result<Output> cache_verify(const Options& options);
Result<Output> cache_clear(const Options& options);
Result<Output> cache_export(const Options& options);
Result<Output> cache_import(const Options& options);
Result<Output> inspect(const Options& options);
Result<Output> convert(const Options& options);
Result<Output> doctor(const Options& options);
Result<Output> variables(const Options& options);

}  // namespace lathe::tool
