// Owns the tokenizer section of a P64 container.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lathe/codegen/result.h"
#include "plan/byte_cursor.h"

namespace lathe::p64 {

struct Tokenizer {
  std::uint32_t bos = 0;
  std::uint32_t eos = 0;
  bool add_bos = true;
  std::string pre;  // kind of pre-tokenizer
  std::vector<std::string> tokens;
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<std::uint32_t> stops;  // at most kMostStops; none in sections of version 1
};
inline constexpr std::size_t kMostStops = 8;

Result<Tokenizer> read_tokenizer(ByteCursor& cursor);
std::vector<std::byte> write_tokenizer(const Tokenizer& tokenizer);

}  // namespace lathe::p64
