// Owns the kernels kept between runs: files addressed by the hash of all that went into them.
//
// docs/cache.md is the contract. Whatever is wrong with an entry, the answer is a miss.
// Threads and processes: any number may read and write the same directory at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/codegen/result.h"

namespace lathe {

class DiskCache {
 public:
  static constexpr std::int64_t kDefaultCap = std::int64_t{512} << 20;

  // Creates the directory if need be. Refuses one that others own or may write to.
  static Result<DiskCache> open(const std::string& directory, std::int64_t cap_bytes = kDefaultCap);

  // 32 hex digits that stand for a key text.
  static std::string digest(std::string_view key);

  std::optional<std::vector<std::byte>> find(std::string_view key) const;
  // By digest alone: for whoever was told the digest by another entry.
  std::optional<std::vector<std::byte>> find_digest(std::string_view digest) const;
  // Publishes atomically. After a batch, call trim().
  Result<void> store(std::string_view key, std::span<const std::byte> payload) const;
  // Evicts the entries read longest ago while the cap is passed, and what killed writers left.
  void trim() const;
  // The path an entry has or would have.
  std::string path_of(std::string_view digest) const;

  const std::string& directory() const { return directory_; }

 private:
  DiskCache(std::string directory, std::int64_t cap)
      : directory_(std::move(directory)), cap_(cap) {}
  std::optional<std::vector<std::byte>> read(std::string_view digest,
                                             std::optional<std::string_view> key) const;

  std::string directory_;  // with the version folder: .../v1
  std::int64_t cap_;
};

}  // namespace lathe
