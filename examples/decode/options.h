// Owns the command line of decode.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lathe/library.h"

namespace lathe::decode {

struct Options {
  std::string model;

  // What to feed: a prompt, or token ids as they are.
  std::string prompt;  // "-" for stdin
  std::string system;
  bool raw = false;
  std::vector<std::int32_t> tokens;  // empty: the prompt counts

  int max_tokens = 256;  // -1: until the context is full
  Sampling sampling;
  int ahead = 0;  // 0: to be chosen when it is known what decodes

  SessionOptions session;
  bool may_fall_back = false;  // to the CPU, if no GPU can be used

  std::string logits_file;
  bool json = false;
  bool quiet = false;
  bool plan = false;     // print the kernels of a token, and end
  bool explain = false;  // print what is chosen and why, and end
  bool profile = false;
  bool parity = false;

  bool token_mode() const { return !tokens.empty(); }
  // Only for want of a GPU: a kernel that no wanted route covers, say, is an error to be seen.
  bool falls_back(const Error& error) const {
    return may_fall_back && error.code == Code::no_driver;
  }
};

// The exit code if there is nothing left to do.
std::optional<int> parse_options(int argc, const char* const* argv, Options& options);

}  // namespace lathe::decode
