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

// What a GGUF file holds, checked. The name index views into `tensors`, which must not change.
struct GgufContents {
  std::unordered_map<std::string, GgufValue> values;
  std::vector<GgufTensor> tensors;
  std::unordered_map<std::string_view, std::size_t> tensor_by_name;
};

Result<GgufContents> parse_gguf(std::span<const std::byte> bytes);

}  // namespace lathe
