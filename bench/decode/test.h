// Owns what one test is: so many tokens, decoded behind so many positions.
#pragma once

#include <string>

namespace lathe::bench {

// Either a prompt that is read or tokens that are generated.
struct Test {
  int prompt = 0;
  int gen = 0;
  int depth = 0;  // positions already in the KV cache

  int tokens() const { return prompt + gen; }
  // "pp512", "tg128 @ d4096"
  std::string name() const {
    const std::string kind = prompt > 0 ? "pp" : "tg";
    return kind + std::to_string(tokens()) + (depth > 0 ? " @ d" + std::to_string(depth) : "");
  }
};

}  // namespace lathe::bench
