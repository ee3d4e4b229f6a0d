// Owns the writing of a GGUF file, version 3: its head, and where tensors go.
#include <fmt/format.h>

#include <bit>

#include "lathe/codegen/format.h"
#include "plan/file_layout.h"
#include "plan/gguf_entries.h"
#include "plan/gguf_parser.h"
#include "plan/p64_format.h"

namespace lathe {
namespace {

constexpr std::uint32_t kVersion = 3;

std::int64_t align_up(std::int64_t offset, std::int64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

Result<void> check_type(const GgufFile& file, const GgufTensor& tensor) {
  if (format_by_ggml_type(tensor.ggml_type) && p64::find_type(tensor.ggml_type) == nullptr)
    return {};
  const p64::Type* type = p64::find_type(tensor.ggml_type);
  return Error{Code::unsupported,
               fmt::format("tensor '{}' is stored as {}, which GGUF files do not have", tensor.name,
                           type != nullptr ? type->name : fmt::format("type {}", tensor.ggml_type)),
               {{"file", file.path()}}};
}

}  // namespace

Result<FileLayout> lay_out_gguf(const GgufFile& file) {
  const FileFacts& facts = file.facts();
  std::int64_t alignment = gguf::kDefaultAlignment;
  if (file.value("general.alignment") != nullptr) {
    LATHE_ASSIGN(alignment, file.integer("general.alignment"));
    if (alignment < 1 || alignment > gguf::kMaxAlignment ||
        !std::has_single_bit(static_cast<std::uint64_t>(alignment))) {
      return Error{Code::corrupt_file,
                   fmt::format("the metadata key 'general.alignment' is {}; it must be a power of "
                               "two up to {}",
                               alignment, gguf::kMaxAlignment),
                   {{"file", file.path()}}};
    }
  }
  FileLayout out;
  append_number(out.head, gguf::kMagic);
  append_number(out.head, kVersion);
  append_number(out.head, std::uint64_t{file.tensors().size()});
  append_number(out.head, facts.metadata_count);
  out.head.insert(out.head.end(), facts.metadata.begin(), facts.metadata.end());
  std::int64_t offset = 0;
  for (const std::uint32_t i : facts.source_order) {
    const GgufTensor& tensor = file.tensors()[i];
    LATHE_TRY(check_type(file, tensor));
    append_gguf_text(out.head, tensor.name);
    append_number(out.head, static_cast<std::uint32_t>(tensor.dims.size()));
    for (const std::int64_t extent : tensor.dims) append_number(out.head, extent);
    append_number(out.head, tensor.ggml_type);
    append_number(out.head, offset);
    out.tensors.push_back({.offset = offset, .bytes = file.data(tensor), .tensor = &tensor});
    if (!facts.checksums.empty()) out.tensors.back().checksum = facts.checksums[i];
    offset = align_up(offset + tensor.bytes, alignment);
  }
  out.head.resize(
      static_cast<std::size_t>(align_up(static_cast<std::int64_t>(out.head.size()), alignment)));
  const auto data = static_cast<std::int64_t>(out.head.size());
  for (FilePiece& piece : out.tensors) piece.offset += data;
  out.bytes = data + offset;
  return out;
}

}  // namespace lathe
