// Owns the writing of tokens to stdout.
#include "examples/decode/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

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
  const bool good = std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size();
  if (good && std::fflush(stdout) == 0) return {};
  return Error{Code::io, std::string("cannot write to stdout: ") + std::strerror(errno), {}};
}

}  // namespace lathe::decode
