// Owns the command line of bench_decode.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lathe/library.h"

namespace lathe::bench {

enum class Output { markdown, csv, json };

struct Options {
  // Measured in every combination.
  std::vector<std::string> models;
  std::vector<ExecutorKind> executors = {ExecutorKind::automatic};
  std::vector<Format> kv = {Format::f16};
  std::vector<int> depths = {0};
  std::vector<int> prompts = {};
  std::vector<int> gens = {128};

  int context = 0;  // 0: what the longest test of a depth needs
  int repetitions = 5;
  bool cold_build = false;
  std::string peer;  // a command line with placeholders; empty: none
  int rounds = 1;    // of the peer and Lathe in turn

  SessionOptions session;  // executor, context and KV format come from the lists
  Output output = Output::markdown;
  bool quiet = false;
};

// The exit code if there is nothing left to do.
std::optional<int> parse_options(int argc, const char* const* argv, Options& options);

}  // namespace lathe::bench
