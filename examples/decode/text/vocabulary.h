// Owns the plain data of a model's vocabulary, as its file gives it. Who fills it (a file reader, a
// test) and who uses it (the tokenizer, the chat formats) know nothing of each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lathe::text {

// The numbers are those of the file format.
enum class TokenType : int32_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6,
};

// An id of -1 means that the model has no such token.
struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<float> scores;        // one a token, or none: only "llama" vocabularies need them
  std::vector<int32_t> types;       // TokenType of each token, or none: then all are normal
  std::vector<std::string> merges;  // "left right", best first: only "gpt2" vocabularies have them
  std::string model;  // "gpt2" (byte-level BPE), "llama" (SentencePiece) or "no_vocab"
  std::string pre;    // names the pre-tokenizer of a "gpt2" vocabulary
  int32_t bos = -1;
  int32_t eos = -1;
  int32_t eot = -1;
  int32_t unknown = -1;
  int32_t padding = -1;
  bool add_bos = false;
  bool add_eos = false;
  bool add_space_prefix = false;
  std::string chat_template;
  std::string architecture;
};

}  // namespace lathe::text
