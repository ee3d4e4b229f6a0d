// Owns making P64 containers in memory for tests, sound ones and others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "plan/file_layout.h"
#include "plan/p64_format.h"

namespace lathe::testing {

// The bytes that a layout says, with its checksums.
std::vector<std::byte> assemble(const FileLayout& layout);

// The container of a GGUF file; empty where there is none.
std::vector<std::byte> p64_image(std::span<const std::byte> gguf, std::uint32_t page_size,
                                 P64Weights weights = P64Weights::as_stored);

template <typename T>
T number_at(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}
template <typename T>
void set_number(std::span<std::byte> bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

// Makes the checksums right again as far as the header still says where they are.
void seal(std::span<std::byte> container);
// Leaves the records alone, as in containers by other programs.
void drop_metadata(std::span<std::byte> container);
// Where the record of a tensor is.
std::size_t entry_of(std::span<const std::byte> container, std::string_view tensor);

}  // namespace lathe::testing
