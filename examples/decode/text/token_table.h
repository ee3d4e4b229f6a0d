// Owns the tokens of a vocabulary, by id and by text. The encoders and the search for special
// tokens read it; nothing changes it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "examples/decode/text/vocabulary.h"

namespace lathe::text {

// Where a special token begins in a text; length 0 if none does.
struct SpecialMatch {
  size_t at = 0;
  size_t length = 0;
  int32_t id = -1;
};

class TokenTable {
 public:
  explicit TokenTable(const Vocabulary& vocabulary);

  // The index by text points into the table itself.
  TokenTable(const TokenTable&) = delete;
  TokenTable& operator=(const TokenTable&) = delete;

  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  bool contains(int32_t id) const { return id >= 0 && id < size(); }
  const std::string& text(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  TokenType type(int32_t id) const { return types_[static_cast<size_t>(id)]; }

  // The id of the token with this text, of any type; -1 if there is none. Of tokens with the same
  // text the first counts.
  int32_t find(std::string_view text) const;

  // As find(), but only tokens that ordinary text may turn into: a control token must never come
  // out of text that merely looks like it.
  int32_t find_ordinary(std::string_view text) const;

  // The first place at or after `from` where a special token begins, and the longest one there.
  // Control and unknown tokens count only if `control` is set; user-defined ones always do.
  SpecialMatch find_special(std::string_view text, size_t from, bool control) const;

 private:
  std::vector<std::string> tokens_;
  std::vector<TokenType> types_;
  std::unordered_map<std::string_view, int32_t> by_text_;
  // Lengths of the special tokens that begin with each byte, longest first.
  std::array<std::vector<size_t>, 256> special_lengths_;
};

}  // namespace lathe::text
