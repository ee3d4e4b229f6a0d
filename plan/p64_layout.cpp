// Owns the writing of a P64 container: its head, and where tensors go.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <tuple>
#include <utility>

#include "lathe/codegen/format.h"
#include "plan/file_layout.h"
#include "plan/gguf_entries.h"
#include "plan/p64_blobs.h"
#include "plan/p64_format.h"
#include "plan/p64_metadata.h"

namespace lathe {
namespace {

using namespace p64;

// Of the tensors of a layer, and of those of none: by role.
constexpr std::array<std::uint16_t, 14> kOrder = {7, 2, 0, 1, 3, 8, 4, 5, 6, 12, 13, 9, 10, 11};

template <typename T>
void append(std::vector<std::byte>& to, const T& record) {
  const auto* from = reinterpret_cast<const std::byte*>(&record);
  to.insert(to.end(), from, from + sizeof(T));
}

void pad(std::vector<std::byte>& bytes, std::uint64_t alignment) {
  bytes.resize(align_up(bytes.size(), alignment));
}

// The coordinates of a layer that follows another, as the format's own writer computes them.
Manifold manifold_of(std::uint32_t layer, std::uint32_t layers) {
  const float depth = static_cast<float>(layer) / static_cast<float>(std::max(layers, 1u));
  constexpr float kPi = std::numbers::pi_v<float>;
  return {{depth, 1 - depth, 1, std::sin(depth * kPi), 0.1f, 0.5f, std::cos(depth * 2 * kPi), 1,
           0.8f, 0},
          {}};
}

struct Placed {
  const GgufTensor* tensor;
  std::uint16_t role;
  std::uint32_t layer;
  std::size_t order;
};

// What a tensor is written as.
struct Kind {
  std::uint32_t type;
  FilePiece::Make make = nullptr;
};

// Q, K, V, output and the FFN's matrices; the FFN's alone.
bool is_matrix(std::uint16_t role) {
  return role <= 6;
}
bool is_ffn(std::uint16_t role) {
  return role >= 4 && role <= 6;
}

Kind kind_of(const GgufTensor& tensor, std::uint16_t role, P64Weights weights) {
  const bool is_q4_k = tensor.ggml_type == row(Format::q4_k).ggml_type;
  if (weights == P64Weights::q4_k_soa && is_q4_k && is_matrix(role))
    return {kTypeQ4KSoa, make_q4_k_soa};
  if (weights == P64Weights::ternary_ffn && is_ffn(role)) return {kTypeTernary, make_ternary};
  return {tensor.ggml_type};
}

class Writer {
 public:
  Writer(const GgufFile& file, std::uint32_t page_size, P64Weights weights)
      : file_(file), page_size_(page_size), weights_(weights), hparams_(make_hparams(file)) {}

  Result<FileLayout> run() {
    if (hparams_.layers > file_.tensors().size()) {
      return at_fault(fmt::format("the model has {} layers, but the file only {} tensors",
                                  hparams_.layers, file_.tensors().size()));
    }
    order_tensors();
    LATHE_TRY(make_entries());
    write_head();
    LATHE_TRY(place_tensors());
    const bool replaced = std::ranges::any_of(
        out_.tensors, [](const FilePiece& piece) { return piece.make != nullptr; });
    if (weights_ != P64Weights::as_stored && !replaced) {
      return Error{Code::invalid_argument,
                   weights_ == P64Weights::q4_k_soa
                       ? "the file has no q4_k matrices in layers that could become q4_k_soa"
                       : "the file has no FFN matrices that could become ternary_base3",
                   {{"file", file_.path()}}};
    }
    return std::move(out_);
  }

 private:
  Error at_fault(std::string message) const {
    return Error{Code::unsupported, std::move(message), {{"file", file_.path()}}};
  }

  void order_tensors() {
    for (const GgufTensor& tensor : file_.tensors()) {
      const Role role = role_of(tensor.name);
      const std::uint32_t layer = role.layer.value_or(hparams_.layers);
      const bool known = role.role != kUnknownRole && (!role.layer || layer < hparams_.layers);
      if (known) {
        const auto order = std::ranges::find(kOrder, role.role) - kOrder.begin();
        tensors_.push_back({&tensor, role.role, layer, static_cast<std::size_t>(order)});
      } else {
        tensors_.push_back({&tensor, kUnknownRole, hparams_.layers, kOrder.size()});
      }
    }
    std::ranges::sort(tensors_, {}, [](const Placed& placed) {
      return std::tuple(placed.layer, placed.order, placed.tensor->offset);
    });
  }

  Result<void> make_entries() {
    names_.push_back(std::byte{0});
    for (const Placed& placed : tensors_) {
      const GgufTensor& tensor = *placed.tensor;
      if (!format_by_ggml_type(tensor.ggml_type)) {
        return at_fault(fmt::format("tensor '{}' has the type {}, whose size is not known here",
                                    tensor.name, tensor.ggml_type));
      }
      TensorEntry entry = {};
      entry.name = static_cast<std::uint32_t>(names_.size());
      append_bytes(names_, tensor.name);
      names_.push_back(std::byte{0});
      entry.role = placed.role;
      entry.type = static_cast<std::uint16_t>(kind_of(tensor, placed.role, weights_).type);
      entry.layer = placed.layer;
      entry.rank = static_cast<std::uint32_t>(tensor.dims.size());
      for (std::size_t d = 0; d < tensor.dims.size(); ++d) {
        if (!std::in_range<std::uint32_t>(tensor.dims[d])) {
          return at_fault(fmt::format("dimension {} of tensor '{}' is {}; P64 holds 32 bits", d,
                                      tensor.name, tensor.dims[d]));
        }
        entry.dims[d] = static_cast<std::uint32_t>(tensor.dims[d]);
      }
      entry.source_offset = static_cast<std::uint64_t>(tensor.offset - file_.facts().data_offset);
      entry.name_hash = hash_of(tensor.name);
      entries_.push_back(entry);
    }
    return {};
  }

  // Header, schedule and entries are filled in when the tensors are placed.
  void write_head() {
    std::vector<std::byte>& head = out_.head;
    head.resize(sizeof(Header));
    append(head, hparams_);
    schedule_at_ = head.size();
    head.resize(schedule_at_ + std::size_t{hparams_.layers} * kRecordBytes);
    table_at_ = head.size();
    head.resize(table_at_ + entries_.size() * kRecordBytes);
    header_.string_table = static_cast<std::uint32_t>(head.size());
    head.insert(head.end(), names_.begin(), names_.end());
    pad(head, kRecordBytes);
    header_.manifold = static_cast<std::uint32_t>(head.size());
    for (std::uint32_t layer = 0; layer <= hparams_.layers; ++layer)
      append(head, manifold_of(layer, hparams_.layers));
    const FileFacts& facts = file_.facts();
    append(head, MetadataHeader{kMetadataTag, kMetadataVersion, facts.metadata_count,
                                facts.metadata.size()});
    head.insert(head.end(), facts.metadata.begin(), facts.metadata.end());
    pad(head, kRecordBytes);
    header_.tokenizer = static_cast<std::uint32_t>(head.size());
    if (const Tokenizer tokenizer = make_tokenizer(file_); !tokenizer.tokens.empty()) {
      const std::vector<std::byte> section = write_tokenizer(tokenizer);
      head.insert(head.end(), section.begin(), section.end());
      pad(head, kRecordBytes);
    }
    out_.checksums = head.size();
    head.resize(head.size() + 4 * (entries_.size() + 1));
  }

  Result<void> place_tensors() {
    std::vector<ScheduleEntry> schedule(hparams_.layers);
    for (std::uint32_t layer = 0; layer < hparams_.layers; ++layer) schedule[layer].layer = layer;
    std::uint64_t end = out_.head.size();
    std::optional<std::uint32_t> layer;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      TensorEntry& entry = entries_[i];
      const GgufTensor& tensor = *tensors_[i].tensor;
      const Kind kind = kind_of(tensor, entry.role, weights_);
      const Type* type = find_type(kind.type);
      const std::int64_t size =
          type != nullptr ? type->bytes(tensor.k(), tensor.rows()) : tensor.bytes;
      const std::uint64_t begin =
          align_up(end, layer == entry.layer ? kPackedAlignment : page_size_);
      layer = entry.layer;
      end = begin + static_cast<std::uint64_t>(size);
      entry.blob = static_cast<std::uint32_t>(begin);
      entry.blob_bytes = static_cast<std::uint32_t>(size);
      out_.tensors.push_back(
          {static_cast<std::int64_t>(begin), file_.data(tensor), kind.make, &tensor});
      if (entry.layer < hparams_.layers) {
        ScheduleEntry& row = schedule[entry.layer];
        if (row.tensors == 0) row.begin = entry.blob;
        row.end = static_cast<std::uint32_t>(end);
        ++row.tensors;
        row.roles = static_cast<std::uint16_t>(row.roles | 1 << entry.role);
      }
    }
    const std::uint64_t total = align_up(end, kRecordBytes);
    if (total > kMostBytes) {
      return at_fault(fmt::format("the model takes {} bytes; offsets of a P64 container reach {}",
                                  total, kMostBytes));
    }
    out_.bytes = static_cast<std::int64_t>(total);
    write_at(schedule_at_, std::as_bytes(std::span(schedule)));
    write_at(table_at_, std::as_bytes(std::span(entries_)));
    write_header();
    return {};
  }

  void write_header() {
    header_.magic = kMagic;
    header_.version = kVersion;
    header_.flags = kLittleEndian | kLayerMajor | kLayerPacks | kLayerSchedule;
    for (const TensorEntry& entry : entries_) {
      if (entry.type == kTypeQ4KSoa) header_.flags |= kQ4KSoa;
      if (entry.type == kTypeTernary) header_.flags |= kTernary;
    }
    header_.role_table = static_cast<std::uint32_t>(schedule_at_);
    header_.tensor_table = static_cast<std::uint32_t>(table_at_);
    header_.hparams = sizeof(Header);
    header_.checksum = static_cast<std::uint32_t>(*out_.checksums);
    header_.tensor_count = static_cast<std::uint32_t>(entries_.size());
    header_.page_size = page_size_;
    write_at(0, std::as_bytes(std::span(&header_, 1)));
  }

  void write_at(std::size_t offset, std::span<const std::byte> bytes) {
    std::ranges::copy(bytes, out_.head.begin() + static_cast<std::ptrdiff_t>(offset));
  }

  const GgufFile& file_;
  const std::uint32_t page_size_;
  const P64Weights weights_;
  const Hparams hparams_;
  Header header_ = {};
  std::vector<Placed> tensors_;
  std::vector<TensorEntry> entries_;
  std::vector<std::byte> names_;
  std::size_t schedule_at_ = 0;
  std::size_t table_at_ = 0;
  FileLayout out_;
};

}  // namespace

Result<FileLayout> lay_out_p64(const GgufFile& file, std::uint32_t page_size, P64Weights weights) {
  return Writer(file, page_size, weights).run();
}

}  // namespace lathe
