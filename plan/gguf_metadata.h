// Owns reading the metadata of a GGUF file: keys and values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "lathe/codegen/result.h"
#include "lathe/plan/gguf.h"
#include "plan/byte_cursor.h"

namespace lathe {

inline constexpr std::size_t kMaxTensorNameBytes = 64;

enum class GgufValueType : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

// Names go into error messages, listings and look-ups: they must be visible text.
Result<void> check_name(std::string_view name, std::string_view what, std::size_t offset,
                        std::size_t limit);

// So many entries; none of their keys may be there already.
Result<void> read_gguf_entries(ByteCursor& cursor, std::uint64_t count,
                               std::unordered_map<std::string, GgufValue>& values);

}  // namespace lathe
