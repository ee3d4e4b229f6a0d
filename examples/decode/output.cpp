// Owns the writing of tokens to stdout.
#include "examples/decode/output.h"

#include "examples/command_line.h"

namespace lathe::decode {

Result<void> Output::token(std::int32_t id) {
  std::string ready;
  if (tokenizer_) ready = stream_.push(tokenizer_->piece(id, false));
  text_ += ready;
  if (form_ == OutputForm::ids) ready = (first_ ? "" : ",") + std::to_string(id);
  first_ = false;
  return print(ready);
}

Result<void> Output::finish() {
  const std::string rest = stream_.flush();
  text_ += rest;
  return print(form_ == OutputForm::text ? rest + "\n" : "\n");
}

Result<void> Output::print(std::string_view bytes) {
  if (form_ == OutputForm::nothing) return {};
  return command_line::print(bytes);
}

}  // namespace lathe::decode
