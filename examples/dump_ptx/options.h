// Owns the command line of dump_ptx.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lathe/library.h"

namespace lathe::dump_ptx {

struct Options {
  std::vector<std::string> words;  // a key's text, or kernel, format and field=value
  std::string model;
  bool persistent = false;  // the model's kernel for whole tokens, not one for each step
  PlanOptions plan;
  bool all = false;
  bool list = false;
  Target target;
  std::vector<Route> routes;  // never empty
  CompilerPaths compilers;
  bool source = false;
  std::string out;  // folder; empty for stdout
  bool assemble = false;
  std::string ptxas;
};

// The exit code if there is nothing left to do.
std::optional<int> parse_options(int argc, const char* const* argv, Options& options);

}  // namespace lathe::dump_ptx
