// Owns the command line of dump_ptx.
#pragma once

#include <cstdint>
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
  bool verify = false;
  bool emulate = false;    // verify without a GPU even where there is one
  int position = 1000;     // that verified kernels look at
  std::uint64_t seed = 0;  // of the inputs; fresh when the command line names none
};

// The exit code if there is nothing left to do.
std::optional<int> parse_options(int argc, const char* const* argv, Options& options);

}  // namespace lathe::dump_ptx
