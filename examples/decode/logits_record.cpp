// Owns the hashing and writing of logits.
#include "examples/decode/logits_record.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lathe::decode {

struct LogitsRecord::State {
  XXH3_state_t xxh3;  // its type asks for 64-byte alignment
};

void LogitsRecord::Free::operator()(State* state) const {
  delete state;
}

LogitsRecord::LogitsRecord(std::string path) : path_(std::move(path)), state_(new State) {
  XXH3_64bits_reset(&state_->xxh3);
}

Result<LogitsRecord> LogitsRecord::create(const std::string& path, const std::string& model) {
  LogitsRecord record(path);
  if (path.empty()) return record;
  std::error_code ignored;
  if (std::filesystem::equivalent(path, model, ignored))
    return Error{Code::invalid_argument,
                 fmt::format("the logits cannot go to '{}': that is the model", path),
                 {}};
  record.file_.reset(std::fopen(path.c_str(), "wb"));
  if (!record.file_) return record.write_error();
  return record;
}

Error LogitsRecord::write_error() const {
  return Error{Code::io,
               fmt::format("cannot write the logits to '{}': {}", path_, std::strerror(errno)),
               {}};
}

Result<void> LogitsRecord::write(std::span<const float> logits) {
  if (!file_) return {};
  if (std::fwrite(logits.data(), sizeof(float), logits.size(), file_.get()) != logits.size())
    return write_error();
  return {};
}

void LogitsRecord::hash(std::span<const float> logits) {
  XXH3_64bits_update(&state_->xxh3, logits.data(), logits.size_bytes());
}

std::uint64_t LogitsRecord::digest() const {
  return XXH3_64bits_digest(&state_->xxh3);
}

Result<void> LogitsRecord::close() {
  if (file_ && std::fclose(file_.release()) != 0) return write_error();
  return {};
}

}  // namespace lathe::decode
