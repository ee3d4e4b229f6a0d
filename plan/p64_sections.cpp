// Owns the reading of a P64 container's header and hyperparameters, and where its sections are.
#include "plan/p64_sections.h"

#include <fmt/format.h>

#include <bit>
#include <string>

#include "plan/byte_cursor.h"

namespace lathe::p64 {
namespace {

Error corrupt(std::string message) {
  return Error{Code::corrupt_file, std::move(message), {}};
}

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  Result<Sections> run() {
    LATHE_TRY(read_header());
    const Header& header = out_.header;
    Section hparams;
    LATHE_TRY(place(hparams, "hyperparameters", header.hparams, kRecordBytes));
    out_.hparams = take<Hparams>(hparams.begin);
    const std::uint64_t layers = out_.hparams.layers;

    // The schedule is in one of the gaps.
    const std::uint64_t gap = end_;
    LATHE_TRY(place(out_.tensors, "tensor table", header.tensor_table,
                    std::uint64_t{header.tensor_count} * kRecordBytes));
    const std::uint64_t before_table = out_.tensors.begin;
    LATHE_TRY(place(out_.strings, "names", header.string_table, 0));
    LATHE_TRY(place(out_.manifold, "manifold table", header.manifold, (layers + 1) * kRecordBytes));
    out_.strings.end = out_.manifold.begin;
    if (out_.manifold.begin % kRecordBytes != 0) {
      return corrupt(fmt::format("the manifold table begins at byte {}, no multiple of {}",
                                 out_.manifold.begin, kRecordBytes));
    }
    const std::uint64_t after_manifold = out_.manifold.end;
    LATHE_TRY(place(out_.tokenizer, "tokenizer", header.tokenizer, 0));
    LATHE_TRY(place(out_.checksum, "checksums", header.checksum,
                    4 * (std::uint64_t{header.tensor_count} + 1)));
    out_.tokenizer.end = out_.checksum.begin;
    out_.blobs = align_up(out_.checksum.end, header.page_size);

    std::uint64_t metadata_gap = align_up(after_manifold, kRecordBytes);
    if ((header.flags & kLayerSchedule) != 0) {
      Section& schedule = out_.schedule;
      schedule = {header.role_table, header.role_table + layers * kRecordBytes};
      const bool early = schedule.begin >= gap && schedule.end <= before_table;
      const bool late = schedule.begin >= after_manifold && schedule.end <= out_.tokenizer.begin;
      if (!early && !late) {
        return corrupt(fmt::format("the layer schedule, bytes {} to {}, lies over other sections",
                                   schedule.begin, schedule.end));
      }
      if (late) metadata_gap = align_up(schedule.end, kRecordBytes);
    }
    LATHE_TRY(find_metadata(metadata_gap));
    return out_;
  }

 private:
  Result<void> read_header() {
    ByteCursor cursor(bytes_);
    LATHE_ASSIGN(out_.header, cursor.number<Header>("the header"));
    const Header& header = out_.header;
    if (header.version != kVersion) {
      // The low half of a version is never zero, so a zero there is one in the other order.
      return Error{Code::unsupported,
                   (header.version & 0xff) == 0 && header.version != 0
                       ? fmt::format("the container is big-endian (version field 0x{:04x} at byte "
                                     "4); only little-endian P64 is read",
                                     header.version)
                       : fmt::format("the version at byte 4 is {}; P64 version {} is read",
                                     header.version, kVersion),
                   {}};
    }
    if ((header.flags & kLittleEndian) == 0) {
      return Error{Code::unsupported,
                   fmt::format("the flags at byte 6 are 0x{:04x}, not those of a little-endian "
                               "container; only such are read",
                               header.flags),
                   {}};
    }
    if ((header.flags & ~kKnownFlags) != 0) {
      return Error{Code::unsupported,
                   fmt::format("the flags at byte 6 are 0x{:04x}; 0x{:04x} of them are not known",
                               header.flags, header.flags & ~kKnownFlags),
                   {}};
    }
    if (header.page_size < kLeastPage || header.page_size > kMostPage ||
        !std::has_single_bit(header.page_size)) {
      return corrupt(
          fmt::format("the page size at byte 40 is {}; it must be a power of two from {} to {}",
                      header.page_size, kLeastPage, kMostPage));
    }
    if (bytes_.size() > kMostBytes) {
      return corrupt(fmt::format("the file has {} bytes; offsets of a P64 container reach {}",
                                 bytes_.size(), kMostBytes));
    }
    end_ = sizeof(Header);
    return {};
  }

  // The next section: behind the one before and within the file.
  Result<void> place(Section& section, std::string_view what, std::uint64_t begin,
                     std::uint64_t size) {
    section = {begin, begin + size};
    if (begin < end_) {
      return corrupt(fmt::format("the {} begin at byte {}, but what is before them ends at byte {}",
                                 what, begin, end_));
    }
    if (section.end > bytes_.size()) {
      return corrupt(fmt::format("the {} end at byte {}, but the file ends at byte {}", what,
                                 section.end, bytes_.size()));
    }
    end_ = section.end;
    return {};
  }

  template <typename T>
  T take(std::uint64_t offset) const {
    return ByteCursor(bytes_, static_cast<std::size_t>(offset)).take<T>();
  }

  Result<void> find_metadata(std::uint64_t gap) {
    const std::uint64_t end = out_.tokenizer.begin;
    if (gap > end || end - gap < sizeof(MetadataHeader)) return {};
    const auto found = take<MetadataHeader>(gap);
    if (found.tag != kMetadataTag) return {};
    if (found.version != kMetadataVersion) {
      return Error{Code::unsupported,
                   fmt::format("the metadata at byte {} have the version {}; {} is read", gap,
                               found.version, kMetadataVersion),
                   {}};
    }
    const std::uint64_t begin = gap + sizeof(MetadataHeader);
    if (found.bytes > end - begin) {
      return corrupt(
          fmt::format("the metadata at byte {} have {} bytes, but the tokenizer begins "
                      "at byte {}",
                      gap, found.bytes, end));
    }
    out_.metadata = Section{begin, begin + found.bytes};
    out_.metadata_count = found.count;
    return {};
  }

  std::span<const std::byte> bytes_;
  std::uint64_t end_ = 0;  // of the section before
  Sections out_;
};

}  // namespace

Result<Sections> read_sections(std::span<const std::byte> bytes) {
  return Reader(bytes).run();
}

}  // namespace lathe::p64
