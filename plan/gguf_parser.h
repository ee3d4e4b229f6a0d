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

// What a model file holds, checked. The name index views into `tensors`, which must not change.
struct GgufContents {
  FileFacts facts;
  std::vector<std::byte> own_metadata;      // what facts.metadata views where the file has none
  std::vector<std::uint32_t> source_order;  // what facts.source_order views
  std::unordered_map<std::string, GgufValue> values;
  std::vector<GgufTensor> tensors;
  std::unordered_map<std::string_view, std::size_t> tensor_by_name;
};

Result<GgufContents> parse_gguf(std::span<const std::byte> bytes);

}  // namespace lathe
