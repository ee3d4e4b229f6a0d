// Owns vocabularies small enough to work out by hand what they must give.
#pragma once

#include <string>

#include "examples/decode/text/vocabulary.h"

namespace lathe::text {

inline int32_t add_token(Vocabulary* vocabulary, std::string text, TokenType type,
                         float score = 0.0f) {
  vocabulary->tokens.push_back(std::move(text));
  vocabulary->types.push_back(static_cast<int32_t>(type));
  vocabulary->scores.push_back(score);
  return static_cast<int32_t>(vocabulary->tokens.size()) - 1;
}

// Byte-level BPE: the letters a to e, a space, and a few merges.
inline Vocabulary small_bpe() {
  Vocabulary v;
  v.model = "gpt2";
  v.pre = "gpt-2";
  v.bos = add_token(&v, "<|im_start|>", TokenType::control);
  v.eos = add_token(&v, "<|im_end|>", TokenType::control);
  for (const char* token : {"a", "b", "c", "d", "e", "\xC4\xA0", "ab", "bc", "abc",
                            "\xC4\xA0"
                            "a",
                            "de", "abcde", "\xC3\xBF"}) {
    add_token(&v, token, TokenType::normal);
  }
  // "\xC4\xA0" spells the space, "\xC3\xBF" the byte 0xFF.
  v.merges = {"b c", "a b", "a bc", "\xC4\xA0 a", "d e", "abc de", "q r"};
  return v;
}

// SentencePiece: some characters and words, and byte tokens for all but the byte 0x00.
inline Vocabulary small_spm() {
  Vocabulary v;
  v.model = "llama";
  v.unknown = add_token(&v, "<unk>", TokenType::unknown);
  v.bos = add_token(&v, "<s>", TokenType::control);
  v.eos = add_token(&v, "</s>", TokenType::control);
  v.add_bos = true;
  v.add_space_prefix = true;
  constexpr char digits[] = "0123456789ABCDEF";
  for (int byte = 1; byte < 256; ++byte) {
    add_token(&v, std::string("<0x") + digits[byte >> 4] + digits[byte & 15] + ">",
              TokenType::byte);
  }
  float score = 0.0f;
  for (const char* token : {"\xE2\x96\x81", "h", "e", "l", "o", "he", "ll", "llo", "hello",
                            "\xE2\x96\x81hello", "hell"}) {
    add_token(&v, token, TokenType::normal, score);
    score -= 1.0f;
  }
  add_token(&v, "<b>", TokenType::user_defined, -100.0f);
  return v;
}

inline int32_t id_of(const Vocabulary& vocabulary, const std::string& text) {
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.tokens[i] == text) {
      return static_cast<int32_t>(i);
    }
  }
  return -1;
}

}  // namespace lathe::text
