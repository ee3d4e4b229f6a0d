// Owns the walk over a GGUF file's header: entries, tensor list, and every check on them.
#include "plan/gguf_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "lathe/codegen/format.h"
#include "plan/byte_cursor.h"
#include "plan/gguf_metadata.h"

namespace lathe {
namespace {

constexpr std::uint32_t kMaxDims = 4;
// The least that one entry can take: a length, one character, a type, one byte of value.
constexpr std::uint64_t kMinValueBytes = 8 + 1 + 4 + 1;
// A length, one character, the dimension count, one dimension, a type, an offset.
constexpr std::uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

Error corrupt(std::string message) {
  return Error{Code::corrupt_file, std::move(message), {}};
}

class Parser {
 public:
  explicit Parser(std::span<const std::byte> bytes) : bytes_(bytes), cursor_(bytes) {}

  Result<GgufContents> run() {
    LATHE_TRY(read_header());
    const std::size_t start = cursor_.offset();
    LATHE_TRY(read_gguf_entries(cursor_, value_count_, out_.values));
    out_.facts.metadata = bytes_.subspan(start, cursor_.offset() - start);
    out_.facts.metadata_count = value_count_;
    LATHE_ASSIGN(const std::int64_t alignment, read_alignment());
    out_.tensors.reserve(static_cast<std::size_t>(tensor_count_));
    for (std::uint64_t i = 0; i < tensor_count_; ++i) LATHE_TRY(read_tensor(i, alignment));
    LATHE_TRY(place_tensors(alignment));
    LATHE_TRY(check_overlap());
    return std::move(out_);
  }

 private:
  Result<void> read_header() {
    LATHE_ASSIGN(const auto magic, cursor_.number<std::uint32_t>("the magic number"));
    if (magic != gguf::kMagic) {
      return corrupt(fmt::format(
          "this is not a GGUF file: its magic number at byte 0 is 0x{:08x}, not \"GGUF\"", magic));
    }
    LATHE_ASSIGN(const auto version, cursor_.number<std::uint32_t>("the version"));
    if (version == 1) {
      return Error{Code::unsupported,
                   "the file is GGUF version 1; versions 2 and 3 are read",
                   {{"hint", "convert the model again with a current converter"}}};
    }
    if (version != 2 && version != 3) {
      // The low half of a version is never zero, so a zero there is a version in the other order.
      if ((version & 0xffff) == 0 && version != 0) {
        return Error{Code::unsupported,
                     fmt::format("the file is big-endian (version field 0x{:08x} at byte 4); only "
                                 "little-endian GGUF is read",
                                 version),
                     {}};
      }
      return Error{
          Code::unsupported,
          fmt::format("the version at byte 4 is {}; GGUF versions 2 and 3 are read", version),
          {}};
    }
    out_.facts.version = static_cast<int>(version);
    out_.facts.bytes = static_cast<std::int64_t>(bytes_.size());
    LATHE_ASSIGN(tensor_count_, cursor_.number<std::uint64_t>("the tensor count"));
    LATHE_ASSIGN(value_count_, cursor_.number<std::uint64_t>("the metadata count"));
    if (tensor_count_ > cursor_.remaining() / kMinTensorBytes) {
      return corrupt(fmt::format(
          "the tensor count at byte 8 is {}, more than the remaining {} bytes can describe",
          tensor_count_, cursor_.remaining()));
    }
    if (value_count_ > cursor_.remaining() / kMinValueBytes) {
      return corrupt(fmt::format(
          "the metadata count at byte 16 is {}, more than the remaining {} bytes can hold",
          value_count_, cursor_.remaining()));
    }
    return {};
  }

  Result<std::int64_t> read_alignment() const {
    const auto found = out_.values.find("general.alignment");
    if (found == out_.values.end()) return gguf::kDefaultAlignment;
    const auto* alignment = std::get_if<std::int64_t>(&found->second);
    if (alignment == nullptr) return corrupt("the metadata key 'general.alignment' is no integer");
    if (*alignment < 1 || *alignment > gguf::kMaxAlignment ||
        !std::has_single_bit(static_cast<std::uint64_t>(*alignment))) {
      return corrupt(fmt::format(
          "the metadata key 'general.alignment' is {}; it must be a power of two up to {}",
          *alignment, gguf::kMaxAlignment));
    }
    return *alignment;
  }

  // The offset stays relative to the data section until place_tensors().
  Result<void> read_tensor(std::uint64_t index, std::int64_t alignment) {
    GgufTensor tensor;
    std::size_t offset = cursor_.offset();
    std::string what = fmt::format("the name of tensor {}", index);
    LATHE_ASSIGN(const auto name, cursor_.text(what));
    LATHE_TRY(check_name(name, what, offset, kMaxTensorNameBytes));
    tensor.name = name;

    offset = cursor_.offset();
    what = fmt::format("the dimension count of tensor '{}'", name);
    LATHE_ASSIGN(const auto dims, cursor_.number<std::uint32_t>(what));
    if (dims < 1 || dims > kMaxDims) {
      return corrupt(
          fmt::format("{} at byte {} is {}; it must be 1 to {}", what, offset, dims, kMaxDims));
    }
    std::int64_t elements = 1;
    for (std::uint32_t d = 0; d < dims; ++d) {
      offset = cursor_.offset();
      what = fmt::format("dimension {} of tensor '{}'", d, name);
      LATHE_ASSIGN(const auto extent, cursor_.number<std::uint64_t>(what));
      if (extent == 0) return corrupt(fmt::format("{} at byte {} is zero", what, offset));
      if (extent >
          static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max() / elements)) {
        return corrupt(
            fmt::format("{} at byte {} is {}, which overflows the tensor's element count", what,
                        offset, extent));
      }
      elements *= static_cast<std::int64_t>(extent);
      tensor.dims.push_back(static_cast<std::int64_t>(extent));
    }
    LATHE_ASSIGN(tensor.ggml_type,
                 cursor_.number<std::uint32_t>(fmt::format("the type of tensor '{}'", name)));
    LATHE_TRY(set_bytes(tensor));

    offset = cursor_.offset();
    what = fmt::format("the offset of tensor '{}'", name);
    LATHE_ASSIGN(const auto data_offset, cursor_.number<std::uint64_t>(what));
    if (data_offset % static_cast<std::uint64_t>(alignment) != 0) {
      return corrupt(fmt::format("{} at byte {} is {}, no multiple of the alignment {}", what,
                                 offset, data_offset, alignment));
    }
    if (data_offset > bytes_.size()) {
      return corrupt(fmt::format("{} at byte {} is {}, past the end of a file of {} bytes", what,
                                 offset, data_offset, bytes_.size()));
    }
    tensor.offset = static_cast<std::int64_t>(data_offset);
    out_.tensors.push_back(std::move(tensor));
    return {};
  }

  // A file may hold tensors of types unknown here as long as nobody needs them.
  Result<void> set_bytes(GgufTensor& tensor) const {
    const auto format = format_by_ggml_type(tensor.ggml_type);
    if (!format) return {};
    const FormatRow& format_row = row(*format);
    if (tensor.k() % format_row.block != 0) {
      return corrupt(
          fmt::format("tensor '{}' has rows of {} values, no multiple of the {} values in a block "
                      "of its format {}",
                      tensor.name, tensor.k(), format_row.block, format_row.name));
    }
    const std::int64_t blocks = tensor.k() / format_row.block * tensor.rows();
    const auto size = static_cast<std::int64_t>(bytes_.size());
    if (blocks > size / format_row.bytes) {
      return corrupt(
          fmt::format("tensor '{}' has {} blocks of {} bytes, more than the whole file of "
                      "{} bytes",
                      tensor.name, blocks, format_row.bytes, size));
    }
    tensor.bytes = blocks * format_row.bytes;
    return {};
  }

  Result<void> place_tensors(std::int64_t alignment) {
    const auto size = static_cast<std::int64_t>(bytes_.size());
    const auto header_end = static_cast<std::int64_t>(cursor_.offset());
    const std::int64_t data = (header_end + alignment - 1) / alignment * alignment;
    out_.facts.data_offset = data;
    for (std::size_t i = 0; i < out_.tensors.size(); ++i) {
      GgufTensor& tensor = out_.tensors[i];
      // A tensor of unknown type takes at least one byte.
      const std::int64_t needed = std::max<std::int64_t>(tensor.bytes, 1);
      if (data > size || tensor.offset > size - data || needed > size - data - tensor.offset) {
        return corrupt(fmt::format(
            "tensor '{}' needs {} bytes at offset {} of the data section, which starts at byte {}, "
            "but the file ends at byte {}",
            tensor.name, needed, tensor.offset, data, size));
      }
      tensor.offset += data;
      if (!out_.tensor_by_name.emplace(tensor.name, i).second) {
        return corrupt(fmt::format("the tensor name '{}' occurs twice", tensor.name));
      }
    }
    return {};
  }

  Result<void> check_overlap() const {
    std::vector<const GgufTensor*> order;
    order.reserve(out_.tensors.size());
    for (const GgufTensor& tensor : out_.tensors) order.push_back(&tensor);
    std::sort(order.begin(), order.end(),
              [](const GgufTensor* a, const GgufTensor* b) { return a->offset < b->offset; });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const GgufTensor& before = *order[i - 1];
      const GgufTensor& after = *order[i];
      if (before.offset + std::max<std::int64_t>(before.bytes, 1) > after.offset) {
        return corrupt(fmt::format("tensors '{}' and '{}' overlap at byte {}", before.name,
                                   after.name, after.offset));
      }
    }
    return {};
  }

  std::span<const std::byte> bytes_;
  ByteCursor cursor_;
  std::uint64_t tensor_count_ = 0;
  std::uint64_t value_count_ = 0;
  GgufContents out_;
};

}  // namespace

Result<GgufContents> parse_gguf(std::span<const std::byte> bytes) {
  return Parser(bytes).run();
}

}  // namespace lathe
