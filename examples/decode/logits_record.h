// Owns what is kept of the logits: a hash, and a file if one was asked for.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "lathe/library.h"

namespace lathe::decode {

class LogitsRecord {
 public:
  // An empty path for no file. Refuses the model itself, by whatever name: it is mapped.
  static Result<LogitsRecord> create(const std::string& path, const std::string& model);

  bool has_file() const { return file_ != nullptr; }
  // Appends to the file, if there is one.
  Result<void> write(std::span<const float> logits);
  // Adds to the hash.
  void hash(std::span<const float> logits);
  std::uint64_t digest() const;

  // Nothing is certain to be in the file before this.
  Result<void> close();

 private:
  struct State;
  struct Free {
    void operator()(State* state) const;
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  explicit LogitsRecord(std::string path);
  Error write_error() const;

  std::string path_;
  std::unique_ptr<State, Free> state_;
  std::unique_ptr<std::FILE, Free> file_;
};

}  // namespace lathe::decode
