// Owns the kernels kept between runs: files addressed by the hash of all that went into them.
//
// docs/cache.md is the contract. Whatever is wrong with an entry, the answer is a miss.
// Threads and processes: any number may read and write the same directory at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/codegen/result.h"
#include "lathe/runtime/cache.h"
#include "runtime/cache_directory.h"
#include "runtime/log.h"

namespace lathe {

struct DiskCacheOptions {
  std::int64_t cap_bytes = std::int64_t{512} << 20;
  bool read_only = false;  // store() and trim() do nothing
  Log log = {};
};

class DiskCache {
 public:
  // Creates the directory if need be. Refuses one that others own or may write to.
  static Result<DiskCache> open(const std::string& directory, DiskCacheOptions options = {});
  DiskCache(DiskCache&&) noexcept;
  DiskCache& operator=(DiskCache&&) noexcept;
  ~DiskCache();

  std::optional<std::vector<std::byte>> find(std::string_view key) const;
  // By digest alone: for whoever was told the digest by another entry.
  std::optional<std::vector<std::byte>> find_digest(std::string_view digest) const;
  // Makes room under the cap, then publishes atomically. The failure has been counted and logged.
  Result<void> store(std::string_view key, std::span<const std::byte> payload) const;
  // Evicts the entries read longest ago while the cap is passed, and what killed writers left.
  void trim() const;

  const CacheDirectory& directory() const { return directory_; }
  CacheCounts counts() const;
  // The first failure to write, a sentence; empty while there was none.
  std::string trouble() const;

 private:
  struct Shared;  // what threads share

  DiskCache(CacheDirectory directory, DiskCacheOptions options);
  std::optional<std::vector<std::byte>> read(std::string_view digest,
                                             std::optional<std::string_view> key) const;
  void reject(std::string_view digest, const struct stat& before, const Error& why) const;
  Result<void> publish(std::string_view key, std::span<const std::byte> payload) const;
  Result<void> make_room(std::int64_t bytes) const;
  struct Evicted {
    std::int64_t entries = 0;
    std::int64_t bytes = 0;
    std::int64_t left = 0;  // bytes of the whole directory
  };
  Evicted trim_to(std::int64_t bytes) const;
  void tell(const Evicted& evicted) const;

  CacheDirectory directory_;
  DiskCacheOptions options_;
  std::unique_ptr<Shared> shared_;
};

}  // namespace lathe
