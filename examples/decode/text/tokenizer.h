// Owns the way from text to token ids and back, for one vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "examples/decode/text/encoder.h"
#include "examples/decode/text/token_table.h"
#include "examples/decode/text/vocabulary.h"

namespace lathe::text {

// Never changes once made, so several threads may use it at once.
class Tokenizer {
 public:
  // Copies what it needs. Null and an error sentence if the vocabulary can't be used.
  static std::unique_ptr<const Tokenizer> create(const Vocabulary& vocabulary, std::string* error);

  // With `parse_special`, text such as "<|im_end|>" becomes the control token of that name: wanted
  // for a formatted chat, not for text from strangers. With `add_bos`, the first token of the model
  // comes first if the vocabulary asks for it. No end token is ever appended, whatever the
  // vocabulary says: what is encoded here is to be continued.
  std::vector<int32_t> encode(std::string_view text, bool parse_special, bool add_bos) const;

  // The bytes of one token, which may be part of a character. Control, unknown and unused tokens
  // have none unless `show_special`. Ids outside the vocabulary have none.
  std::string piece(int32_t id, bool show_special) const;

  // All pieces in a row, without the space that encode() may have put in front.
  std::string decode(std::span<const int32_t> ids, bool show_special) const;

  // Whether the model says by this token that it has finished.
  bool is_stop(int32_t id) const { return stops_.contains(id); }
  // At most so many of those tokens.
  std::vector<int32_t> stops(std::size_t most) const {
    std::vector<int32_t> ids;
    for (auto it = stops_.begin(); it != stops_.end() && ids.size() < most; ++it)
      ids.push_back(*it);
    return ids;
  }

  // The id of the token with exactly this text; -1 if there is none.
  int32_t find(std::string_view token) const { return table_.find(token); }

  int32_t size() const { return table_.size(); }

 private:
  explicit Tokenizer(const Vocabulary& vocabulary);

  bool is_hidden(int32_t id) const;
  void find_stops(const Vocabulary& vocabulary);

  TokenTable table_;
  std::unique_ptr<const Encoder> encoder_;
  std::unordered_set<int32_t> stops_;
  int32_t bos_;  // -1 if the vocabulary doesn't ask for one
  bool add_space_prefix_;
};

}  // namespace lathe::text
