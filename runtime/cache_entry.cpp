// Owns the layout of a cache entry and its checks.
#include "runtime/cache_entry.h"

#include <fmt/format.h>

#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lathe {
namespace {

constexpr char kMagic[8] = {'L', 'A', 'T', 'H', 'E', 'K', '1', '\n'};
// No kernel comes near this; a larger length field is damage.
constexpr std::uint64_t kMaxPart = std::uint64_t{1} << 28;

struct Header {
  char magic[8];
  std::uint64_t key_bytes;
  std::uint64_t payload_bytes;
  std::uint64_t checksum;  // xxh3-64 of key and payload
};

std::uint64_t checksum(std::string_view key, std::span<const std::byte> payload) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, key.data(), key.size());
  XXH3_64bits_update(&state, payload.data(), payload.size());
  return XXH3_64bits_digest(&state);
}

Error damaged(const char* what) {
  return Error{Code::corrupt_file, what, {}};
}

Error unread() {
  if (errno == 0) return damaged("it is cut short");
  return Error{Code::io, std::strerror(errno), {}};
}

Result<Header> read_header(const FileDescriptor& file, std::int64_t bytes, CacheEntryEnd end) {
  Header header = {};
  if (!file.read(&header, sizeof header)) return unread();
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    return damaged("it does not begin as an entry does");
  }
  if (header.key_bytes > kMaxPart || header.payload_bytes > kMaxPart) {
    return damaged("its lengths are impossible");
  }
  const auto length = std::int64_t(sizeof header + header.key_bytes + header.payload_bytes);
  if (length > bytes) return damaged("it is cut short");
  if (length < bytes && end == CacheEntryEnd::exact) {
    return damaged("it is longer than it says");
  }
  return header;
}

}  // namespace

std::string cache_digest(std::string_view key) {
  const XXH128_hash_t hash = XXH3_128bits(key.data(), key.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

bool is_cache_digest(std::string_view text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

std::int64_t cache_entry_bytes(std::string_view key, std::span<const std::byte> payload) {
  return std::int64_t(sizeof(Header) + key.size() + payload.size());
}

Result<CacheContents> read_cache_entry(const FileDescriptor& file, std::int64_t bytes,
                                       CacheEntryEnd end) {
  LATHE_ASSIGN(const Header header, read_header(file, bytes, end));
  CacheContents entry;
  entry.key.resize(header.key_bytes);
  entry.payload.resize(header.payload_bytes);
  if (!file.read(entry.key.data(), entry.key.size())) return unread();
  if (!file.read(entry.payload.data(), entry.payload.size())) return unread();
  if (checksum(entry.key, entry.payload) != header.checksum) {
    return damaged("its checksum is wrong");
  }
  return entry;
}

Result<std::string> read_cache_key(const FileDescriptor& file, std::int64_t bytes) {
  LATHE_ASSIGN(const Header header, read_header(file, bytes, CacheEntryEnd::exact));
  std::string key(header.key_bytes, '\0');
  if (!file.read(key.data(), key.size())) return unread();
  return key;
}

bool write_cache_entry(const FileDescriptor& file, std::string_view key,
                       std::span<const std::byte> payload) {
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.key_bytes = key.size();
  header.payload_bytes = payload.size();
  header.checksum = checksum(key, payload);
  return file.write(&header, sizeof header) && file.write(key.data(), key.size()) &&
         file.write(payload.data(), payload.size());
}

}  // namespace lathe
