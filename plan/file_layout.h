// Owns what a model file that is to be written is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lathe/codegen/result.h"
#include "lathe/plan/gguf.h"

namespace lathe {

struct FilePiece {
  std::int64_t offset;
  std::span<const std::byte> bytes;
  // Where given, what it makes of a tensor with those bytes is written in their place.
  using Make = Result<std::vector<std::byte>> (*)(const GgufTensor& tensor,
                                                  std::span<const std::byte> bytes);
  Make make = nullptr;
  const GgufTensor* tensor = nullptr;
  std::optional<std::uint32_t> checksum = {};  // the CRC-32C that `bytes` must have
};

// Zeros where there is neither head nor tensor.
struct FileLayout {
  std::vector<std::byte> head;
  std::vector<FilePiece> tensors;  // by offset, behind the head
  std::int64_t bytes = 0;
  // Where in the head the CRC-32C of all before them is to stand, then that of each tensor.
  std::optional<std::size_t> checksums;
};

// The layouts view the file's map. Errors name what the container cannot hold.
Result<FileLayout> lay_out_gguf(const GgufFile& file);
Result<FileLayout> lay_out_p64(const GgufFile& file, std::uint32_t page_size,
                               P64Weights weights = P64Weights::as_stored);

}  // namespace lathe
