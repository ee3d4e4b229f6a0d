// Owns the building and searching of the token table.
#include "examples/decode/text/token_table.h"

#include <algorithm>
#include <functional>

namespace lathe::text {

namespace {

bool is_special(TokenType type) {
  return type == TokenType::control || type == TokenType::unknown ||
         type == TokenType::user_defined;
}

}  // namespace

TokenTable::TokenTable(const Vocabulary& vocabulary) : tokens_(vocabulary.tokens) {
  types_.resize(tokens_.size(), TokenType::normal);
  for (size_t i = 0; i < vocabulary.types.size() && i < types_.size(); ++i) {
    types_[i] = static_cast<TokenType>(vocabulary.types[i]);
  }
  by_text_.reserve(tokens_.size());
  for (int32_t id = 0; id < size(); ++id) {
    const std::string& token = text(id);
    if (token.empty() || !by_text_.emplace(token, id).second || !is_special(type(id))) {
      continue;
    }
    std::vector<size_t>& lengths = special_lengths_[static_cast<unsigned char>(token[0])];
    if (std::find(lengths.begin(), lengths.end(), token.size()) == lengths.end()) {
      lengths.push_back(token.size());
    }
  }
  for (std::vector<size_t>& lengths : special_lengths_) {
    std::sort(lengths.begin(), lengths.end(), std::greater<>());
  }
}

int32_t TokenTable::find(std::string_view text) const {
  const auto found = by_text_.find(text);
  return found == by_text_.end() ? -1 : found->second;
}

int32_t TokenTable::find_ordinary(std::string_view text) const {
  const int32_t id = find(text);
  if (id >= 0) {
    const TokenType kind = type(id);
    if (kind == TokenType::control || kind == TokenType::unknown || kind == TokenType::byte) {
      return -1;
    }
  }
  return id;
}

SpecialMatch TokenTable::find_special(std::string_view text, size_t from, bool control) const {
  for (size_t at = from; at < text.size(); ++at) {
    for (const size_t length : special_lengths_[static_cast<unsigned char>(text[at])]) {
      if (length > text.size() - at) {
        continue;
      }
      const int32_t id = find(text.substr(at, length));
      if (id < 0 || !is_special(type(id))) {
        continue;
      }
      if (control || type(id) == TokenType::user_defined) {
        return {at, length, id};
      }
    }
  }
  return {};
}

}  // namespace lathe::text
