// Owns the first cut of text for byte-level BPE: merges never cross the pieces made here, so a
// model only sees the token ids it was trained on when its own cuts are used.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::text {

class Pretokenizer {
 public:
  // `name` is the file's tokenizer.ggml.pre. Null and an error that names it if it isn't known.
  static std::unique_ptr<const Pretokenizer> create(std::string_view name, std::string* error);

  ~Pretokenizer();

  // Appends the pieces of the text, in order and without loss. Damaged UTF-8 becomes pieces of its
  // own. Safe to call from several threads.
  void split(std::string_view text, std::vector<std::string_view>* pieces) const;

  // Whether a piece that is a token as a whole is taken without asking whether merges lead to it.
  bool whole_pieces_first() const { return whole_pieces_first_; }

 private:
  struct Stage;

  Pretokenizer();
  void split_valid(std::string_view text, std::vector<std::string_view>* pieces) const;

  std::vector<Stage> stages_;
  bool whole_pieces_first_ = false;
};

// Whether models with this pre-tokenizer begin with their first token when the file doesn't say.
bool pretokenizer_adds_bos(std::string_view name);

}  // namespace lathe::text
