// Owns what is written to stdout while the model speaks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "examples/decode/text/tokenizer.h"
#include "examples/decode/text/utf8_stream.h"
#include "lathe/library.h"

namespace lathe::decode {

enum class OutputForm {
  text,     // as it comes, in whole characters
  ids,      // "1,2,3", to be fed with --tokens
  nothing,  // the JSON object at the end has it all
};

class Output {
 public:
  // The tokenizer may be null for every form but text.
  Output(OutputForm form, const text::Tokenizer* tokenizer) : form_(form), tokenizer_(tokenizer) {}

  Result<void> token(std::int32_t id);
  // Ends the line.
  Result<void> finish();
  // Everything so far, valid UTF-8; empty without a tokenizer.
  const std::string& text() const { return text_; }

 private:
  Result<void> print(std::string_view bytes);

  OutputForm form_;
  const text::Tokenizer* tokenizer_;
  text::Utf8Stream stream_;
  std::string text_;
  bool first_ = true;
};

}  // namespace lathe::decode
