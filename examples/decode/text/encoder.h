// Owns what the tokenizer asks of an encoding: ordinary text to ids, and an id back to bytes. There
// are two encodings, one a file: bpe.cpp and spm.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "examples/decode/text/token_table.h"
#include "examples/decode/text/vocabulary.h"

namespace lathe::text {

class Encoder {
 public:
  virtual ~Encoder() = default;

  // Appends the ids of text that holds no special token. `after_special` says that it begins the
  // whole text or follows a special token.
  virtual void encode(std::string_view text, bool after_special,
                      std::vector<int32_t>* ids) const = 0;

  // The bytes that an ordinary token stands for.
  virtual std::string bytes(int32_t id) const = 0;
};

// The table must outlive the encoder; the vocabulary is only read here. Null and an error if the
// vocabulary can't be used.
std::unique_ptr<const Encoder> make_bpe(const TokenTable& table, const Vocabulary& vocabulary,
                                        std::string* error);
std::unique_ptr<const Encoder> make_spm(const TokenTable& table, const Vocabulary& vocabulary,
                                        std::string* error);

}  // namespace lathe::text
