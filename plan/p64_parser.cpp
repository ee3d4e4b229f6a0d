// Owns the walk over a P64 container: sections, tensors, checksums, and every check on them.
#include "plan/p64_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>

#include "lathe/codegen/format.h"
#include "plan/byte_cursor.h"
#include "plan/crc32c.h"
#include "plan/gguf_metadata.h"
#include "plan/p64_format.h"
#include "plan/p64_metadata.h"
#include "plan/p64_sections.h"

namespace lathe {
namespace {

using p64::TensorEntry;

Error corrupt(std::string message) {
  return Error{Code::corrupt_file, std::move(message), {}};
}

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, Integrity integrity)
      : bytes_(bytes), integrity_(integrity) {}

  Result<GgufContents> run() {
    LATHE_ASSIGN(sections_, p64::read_sections(bytes_));
    out_.facts.container = Container::p64;
    out_.facts.version = p64::kVersion;
    out_.facts.bytes = static_cast<std::int64_t>(bytes_.size());
    if (integrity_ != Integrity::structure) LATHE_TRY(check_metadata());
    LATHE_TRY(check_schedule());
    LATHE_TRY(check_manifold());
    end_of_blobs_ = sections_.blobs;
    const std::uint32_t count = sections_.header.tensor_count;
    out_.tensors.reserve(count);
    out_.checksums.reserve(count);
    for (std::uint32_t i = 0; i < count; ++i) LATHE_TRY(read_tensor(i));
    for (std::uint32_t i = 0; i < count; ++i) LATHE_TRY(index_tensor(i));
    out_.source_order.resize(count);
    std::iota(out_.source_order.begin(), out_.source_order.end(), 0);
    std::ranges::stable_sort(out_.source_order, {},
                             [this](std::uint32_t i) { return source_offsets_[i]; });
    out_.facts.source_order = out_.source_order;
    out_.facts.checksums = out_.checksums;
    LATHE_TRY(read_metadata());
    return std::move(out_);
  }

 private:
  template <typename T>
  T record(std::uint64_t offset) const {
    return ByteCursor(bytes_, static_cast<std::size_t>(offset)).take<T>();
  }

  std::uint32_t stored_sum(std::uint32_t index) const {
    return record<std::uint32_t>(sections_.checksum.begin + 4 * std::uint64_t{index});
  }

  Result<void> check_sum(std::uint32_t index, std::uint64_t begin, std::uint64_t end,
                         std::string_view what) const {
    const std::uint32_t stored = stored_sum(index);
    const std::uint32_t found = crc32c(bytes_.subspan(begin, end - begin));
    if (found == stored) return {};
    return corrupt(fmt::format("{} is damaged: its CRC-32C is 0x{:08x}, but byte {} has 0x{:08x}",
                               what, found, sections_.checksum.begin + 4 * std::uint64_t{index},
                               stored));
  }

  Result<void> check_metadata() const {
    return check_sum(0, 0, sections_.checksum.begin, "all before the tensors");
  }

  Result<void> check_schedule() const {
    const p64::Section& schedule = sections_.schedule;
    for (std::uint64_t at = schedule.begin; at < schedule.end; at += p64::kRecordBytes) {
      const auto entry = record<p64::ScheduleEntry>(at);
      const std::uint64_t layer = (at - schedule.begin) / p64::kRecordBytes;
      if (entry.layer == layer && entry.begin <= entry.end && entry.end <= bytes_.size()) continue;
      return corrupt(fmt::format(
          "the schedule at byte {} has layer {} with the bytes {} to {} in place of layer {}", at,
          entry.layer, entry.begin, entry.end, layer));
    }
    return {};
  }

  Result<void> check_manifold() const {
    const p64::Section& manifold = sections_.manifold;
    for (std::uint64_t at = manifold.begin; at < manifold.end; at += p64::kRecordBytes) {
      const auto entry = record<p64::Manifold>(at);
      if (std::ranges::all_of(entry.coordinates, [](float x) { return std::isfinite(x); }))
        continue;
      return corrupt(
          fmt::format("the manifold record at byte {} has a coordinate that is not finite", at));
    }
    return {};
  }

  Result<void> read_tensor(std::uint32_t index) {
    const auto entry =
        record<TensorEntry>(sections_.tensors.begin + std::uint64_t{index} * p64::kRecordBytes);
    GgufTensor tensor;
    if (entry.layer > sections_.hparams.layers) {
      return corrupt(fmt::format("tensor {} is of layer {}, but there are {} layers", index,
                                 entry.layer, sections_.hparams.layers));
    }
    LATHE_ASSIGN(tensor.name, read_name(index, entry));
    LATHE_TRY(read_shape(entry, tensor));
    tensor.ggml_type = entry.type;
    LATHE_TRY(check_bytes(entry, tensor));
    LATHE_TRY(place(entry, tensor));
    if (integrity_ == Integrity::full) {
      LATHE_TRY(check_sum(index + 1, entry.blob, std::uint64_t{entry.blob} + entry.blob_bytes,
                          fmt::format("tensor '{}'", tensor.name)));
    }
    out_.tensors.push_back(std::move(tensor));
    out_.checksums.push_back(stored_sum(index + 1));
    source_offsets_.push_back(entry.source_offset);
    return {};
  }

  // A role says more than a name, which some writers do not keep.
  Result<std::string> read_name(std::uint32_t index, const TensorEntry& entry) {
    const p64::Section& strings = sections_.strings;
    const std::uint64_t begin = strings.begin + entry.name;
    const auto* end = begin < strings.end ? static_cast<const std::byte*>(std::memchr(
                                                bytes_.data() + begin, 0, strings.end - begin))
                                          : nullptr;
    if (end == nullptr) {
      return corrupt(fmt::format(
          "the name of tensor {} at byte {} does not end within the names, which end at byte {}",
          index, begin, strings.end));
    }
    const std::string_view stored(reinterpret_cast<const char*>(bytes_.data() + begin),
                                  static_cast<std::size_t>(end - (bytes_.data() + begin)));
    LATHE_TRY(check_name(stored, fmt::format("the name of tensor {}", index), begin,
                         kMaxTensorNameBytes));
    const std::uint32_t layers = sections_.hparams.layers;
    if (std::string name = p64::name_of(entry.role, entry.layer, layers); !name.empty())
      return name;
    if (stored != p64::hashed_name(entry.name_hash)) return std::string(stored);
    // No more layers than tensors can have any.
    if (!names_) names_ = p64::names_behind_hashes(std::min(layers, sections_.header.tensor_count));
    const auto found = names_->find(entry.name_hash);
    return found == names_->end() ? std::string(stored) : found->second;
  }

  Result<void> read_shape(const TensorEntry& entry, GgufTensor& tensor) const {
    if (entry.rank < 1 || entry.rank > entry.dims.size()) {
      return corrupt(fmt::format("tensor '{}' has {} dimensions; it must be 1 to {}", tensor.name,
                                 entry.rank, entry.dims.size()));
    }
    std::int64_t elements = 1;
    for (std::uint32_t d = 0; d < entry.rank; ++d) {
      const std::int64_t extent = entry.dims[d];
      if (extent == 0 || extent > std::numeric_limits<std::int64_t>::max() / elements) {
        return corrupt(fmt::format("dimension {} of tensor '{}' is {}, which makes no tensor", d,
                                   tensor.name, extent));
      }
      elements *= extent;
      tensor.dims.push_back(extent);
    }
    return {};
  }

  // The shape and the type say how many bytes there are; of a type unknown here the entry does.
  Result<void> check_bytes(const TensorEntry& entry, GgufTensor& tensor) const {
    tensor.bytes = entry.blob_bytes;
    // No tensor has as many blocks as would overflow: its bytes are counted in 32 bits.
    if (tensor.k() > std::numeric_limits<std::int64_t>::max() / 1024 / tensor.rows()) {
      return corrupt(
          fmt::format("tensor '{}' has more values than a container can hold", tensor.name));
    }
    std::int64_t needed = 0;
    std::string name;
    if (const auto format = format_by_ggml_type(entry.type)) {
      const FormatRow& format_row = row(*format);
      name = format_row.name;
      if (tensor.k() % format_row.block == 0)
        needed = tensor.k() / format_row.block * format_row.bytes * tensor.rows();
    } else if (const p64::Type* type = p64::find_type(entry.type)) {
      name = type->name;
      needed = type->bytes(tensor.k(), tensor.rows());
    } else {
      return {};
    }
    if (needed == 0) {
      return corrupt(
          fmt::format("tensor '{}' has rows of {} values, no multiple of the block of {}",
                      tensor.name, tensor.k(), name));
    }
    if (needed == tensor.bytes) return {};
    return corrupt(fmt::format("tensor '{}' has {} bytes, but {} x {} values of {} have {}",
                               tensor.name, tensor.bytes, tensor.rows(), tensor.k(), name, needed));
  }

  Result<void> place(const TensorEntry& entry, GgufTensor& tensor) {
    const bool packed = (sections_.header.flags & p64::kLayerPacks) != 0 && layer_ == entry.layer;
    const std::uint32_t alignment = packed ? p64::kPackedAlignment : sections_.header.page_size;
    if (entry.blob % alignment != 0) {
      return corrupt(fmt::format("tensor '{}' begins at byte {}, no multiple of {}", tensor.name,
                                 entry.blob, alignment));
    }
    if (entry.blob < end_of_blobs_) {
      return corrupt(fmt::format("tensor '{}' begins at byte {}, but what is before it ends at {}",
                                 tensor.name, entry.blob, end_of_blobs_));
    }
    const std::uint64_t end = std::uint64_t{entry.blob} + entry.blob_bytes;
    if (end > bytes_.size()) {
      return corrupt(fmt::format("tensor '{}' ends at byte {}, but the file ends at byte {}",
                                 tensor.name, end, bytes_.size()));
    }
    tensor.offset = entry.blob;
    layer_ = entry.layer;
    end_of_blobs_ = end;
    return {};
  }

  Result<void> index_tensor(std::uint32_t index) {
    const std::string& name = out_.tensors[index].name;
    if (out_.tensor_by_name.emplace(name, index).second) return {};
    return corrupt(fmt::format("the tensor name '{}' occurs twice", name));
  }

  Result<void> read_metadata() {
    if (sections_.metadata) return read_stored_metadata(*sections_.metadata);
    std::optional<p64::Tokenizer> tokenizer;
    const p64::Section& section = sections_.tokenizer;
    if (section.begin != section.end) {
      ByteCursor cursor(bytes_.first(section.end), section.begin);
      LATHE_ASSIGN(tokenizer, p64::read_tokenizer(cursor));
    }
    p64::MadeMetadata made =
        p64::make_metadata(sections_.hparams, out_.tensors, tokenizer ? &*tokenizer : nullptr);
    out_.own_metadata = std::move(made.entries);
    out_.facts.metadata = out_.own_metadata;
    out_.facts.metadata_count = made.count;
    ByteCursor cursor(out_.own_metadata);
    return read_gguf_entries(cursor, made.count, out_.values);
  }

  Result<void> read_stored_metadata(const p64::Section& section) {
    out_.facts.metadata = bytes_.subspan(section.begin, section.end - section.begin);
    out_.facts.metadata_count = sections_.metadata_count;
    ByteCursor cursor(bytes_.first(section.end), section.begin);
    LATHE_TRY(read_gguf_entries(cursor, sections_.metadata_count, out_.values));
    if (cursor.remaining() == 0) return {};
    return corrupt(fmt::format("the metadata end at byte {}, {} bytes before their section does",
                               cursor.offset(), cursor.remaining()));
  }

  std::span<const std::byte> bytes_;
  Integrity integrity_;
  p64::Sections sections_;
  std::optional<std::unordered_map<std::uint64_t, std::string>> names_;
  std::vector<std::uint64_t> source_offsets_;
  std::optional<std::uint32_t> layer_;  // of the tensor before
  std::uint64_t end_of_blobs_ = 0;
  GgufContents out_;
};

}  // namespace

bool is_p64(std::span<const std::byte> bytes) {
  return bytes.size() >= p64::kMagic.size() &&
         std::memcmp(bytes.data(), p64::kMagic.data(), p64::kMagic.size()) == 0;
}

Result<GgufContents> parse_p64(std::span<const std::byte> bytes, Integrity integrity) {
  return Parser(bytes, integrity).run();
}

}  // namespace lathe
