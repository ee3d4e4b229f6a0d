// Owns the options of bench_tune.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lathe/runtime/session.h"

namespace lathe::bench::tune {

struct Options {
  std::vector<std::string> models;
  int gen = 128;  // tokens of a repetition
  int depth = 0;  // positions before them
  int repetitions = 5;
  std::string table;  // a file that the rows are put into; empty: they are printed alone
  bool quiet = false;
  SessionOptions session;
};

// The exit code to end with, or nothing to go on.
std::optional<int> parse_options(int argc, const char* const* argv, Options& options);

}  // namespace lathe::bench::tune
