// Owns the walk over a GGUF file's header: metadata, tensor list, and every check on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lathe/codegen/result.h"
#include "lathe/plan/gguf.h"

namespace lathe {

namespace gguf {

inline constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
inline constexpr std::int64_t kDefaultAlignment = 32;
inline constexpr std::int64_t kMaxAlignment = 1 << 20;

}  // namespace gguf

// What a model file holds, checked. The name index views into `tensors`, which must not change.
struct GgufContents {
  FileFacts facts;
  std::vector<std::byte> own_metadata;      // what facts.metadata views where the file has none
  std::vector<std::uint32_t> source_order;  // what facts.source_order views
  std::vector<std::uint32_t> checksums;     // what facts.checksums views
  std::unordered_map<std::string, GgufValue> values;
  std::vector<GgufTensor> tensors;
  std::unordered_map<std::string_view, std::size_t> tensor_by_name;
};

Result<GgufContents> parse_gguf(std::span<const std::byte> bytes);

}  // namespace lathe
