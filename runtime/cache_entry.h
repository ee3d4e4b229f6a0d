// Owns the bytes of one entry of the disk cache, in its file and in an exported archive.
//
// An entry is a header, the key's whole text and the payload; a checksum covers the last two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/codegen/result.h"
#include "runtime/file_descriptor.h"

namespace lathe {

struct CacheContents {
  std::string key;
  std::vector<std::byte> payload;
};

// 32 hex digits that stand for a key text: the entry's name.
std::string cache_digest(std::string_view key);
bool is_cache_digest(std::string_view text);

// Bytes of an entry in its file.
std::int64_t cache_entry_bytes(std::string_view key, std::span<const std::byte> payload);

// Whether an entry fills the bytes there are, or others may follow.
enum class CacheEntryEnd : std::uint8_t { exact, open };

// Reads the entry at the descriptor's position, of at most so many bytes, and checks all of it.
// Code::corrupt_file: what is wrong with it; Code::io: it cannot be read.
Result<CacheContents> read_cache_entry(const FileDescriptor& file, std::int64_t bytes,
                                       CacheEntryEnd end);
// The key text alone, unchecked.
Result<std::string> read_cache_key(const FileDescriptor& file, std::int64_t bytes);

// False, with errno, when not all was written.
bool write_cache_entry(const FileDescriptor& file, std::string_view key,
                       std::span<const std::byte> payload);

}  // namespace lathe
