// Owns the options of bench_batch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lathe/runtime/batch.h"

namespace lathe::bench::batch {

struct Options {
  std::string model;
  std::vector<int> sequences = {1, 8, 32};  // that decode together
  std::vector<int> drafts = {7};            // of a step, at most
  int gen = 64;                             // tokens of each sequence
  int depth = 128;                          // positions before them
  int repetitions = 3;
  bool csv = false, quiet = false;
  BatchOptions batch;
};

// The exit code to end with, or nothing to go on.
std::optional<int> parse_options(int argc, const char* const* argv, Options& options);

}  // namespace lathe::bench::batch
