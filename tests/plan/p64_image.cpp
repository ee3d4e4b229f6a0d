// Owns making P64 containers in memory for tests, sound ones and others.
#include "tests/plan/p64_image.h"

#include <algorithm>

#include "lathe/plan/gguf.h"
#include "plan/crc32c.h"

namespace lathe::testing {

std::vector<std::byte> assemble(const FileLayout& layout) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(layout.bytes));
  std::ranges::copy(layout.head, bytes.begin());
  for (const FilePiece& tensor : layout.tensors) {
    if (tensor.make == nullptr)
      std::ranges::copy(tensor.bytes, bytes.begin() + tensor.offset);
    else if (const auto made = tensor.make(*tensor.tensor, tensor.bytes))
      std::ranges::copy(*made, bytes.begin() + tensor.offset);
  }
  if (layout.checksums) seal(bytes);
  return bytes;
}

std::vector<std::byte> p64_image(std::span<const std::byte> gguf, std::uint32_t page_size,
                                 P64Weights weights) {
  const auto file = GgufFile::from_bytes(gguf, "source");
  if (!file) return {};
  const auto layout = lay_out_p64(**file, page_size, weights);
  if (!layout) return {};
  return assemble(*layout);
}

void seal(std::span<std::byte> container) {
  if (container.size() < sizeof(p64::Header)) return;
  const auto header = number_at<p64::Header>(container, 0);
  const std::size_t at = header.checksum;
  const std::size_t count = header.tensor_count;
  if (at > container.size() || count >= (container.size() - at) / 4) return;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t entry_at = header.tensor_table + i * sizeof(p64::TensorEntry);
    if (entry_at + sizeof(p64::TensorEntry) > container.size()) continue;
    const auto entry = number_at<p64::TensorEntry>(container, entry_at);
    if (std::uint64_t{entry.blob} + entry.blob_bytes > container.size()) continue;
    set_number(container, at + 4 * (i + 1),
               crc32c(container.subspan(entry.blob, entry.blob_bytes)));
  }
  set_number(container, at, crc32c(container.first(at)));
}

void drop_metadata(std::span<std::byte> container) {
  const auto* tag = reinterpret_cast<const std::byte*>(p64::kMetadataTag.data());
  const auto found = std::search(container.begin(), container.end(), tag, tag + 4);
  if (found != container.end()) *found = std::byte{0};
  seal(container);
}

std::size_t entry_of(std::span<const std::byte> container, std::string_view tensor) {
  const auto header = number_at<p64::Header>(container, 0);
  for (std::size_t i = 0; i < header.tensor_count; ++i) {
    const std::size_t at = header.tensor_table + i * sizeof(p64::TensorEntry);
    const auto entry = number_at<p64::TensorEntry>(container, at);
    const auto* name =
        reinterpret_cast<const char*>(container.data()) + header.string_table + entry.name;
    if (name == tensor) return at;
  }
  return 0;
}

}  // namespace lathe::testing
