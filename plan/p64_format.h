// Owns the fixed parts of a P64 container, version 4: its records, roles, types and hashes.
//
// All numbers are little-endian, all offsets are from the start of the file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace lathe::p64 {

inline constexpr std::array<char, 4> kMagic = {'p', '6', '4', '\0'};
inline constexpr std::uint16_t kVersion = 4;
inline constexpr std::uint32_t kRecordBytes = 64;  // of every record below
inline constexpr std::uint64_t kMostBytes = 0xffffffff;
inline constexpr std::uint32_t kLeastPage = 256;
inline constexpr std::uint32_t kMostPage = 1u << 30;
inline constexpr std::uint32_t kPackedAlignment = 256;  // within a layer, where layers are packed

inline std::uint64_t align_up(std::uint64_t offset, std::uint64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

enum Flag : std::uint16_t {
  kLittleEndian = 1 << 0,
  kRawTranscode = 1 << 1,
  kTernary = 1 << 2,
  kQ4KSoa = 1 << 3,
  kLayerMajor = 1 << 4,
  kLayerPacks = 1 << 5,
  kLayerSchedule = 1 << 6,
};
inline constexpr std::uint16_t kKnownFlags = (1 << 7) - 1;

struct Header {
  std::array<char, 4> magic;
  std::uint16_t version;
  std::uint16_t flags;
  std::uint32_t role_table;  // the layer schedule, where its flag is set
  std::uint32_t tensor_table;
  std::uint32_t tokenizer;
  std::uint32_t hparams;
  std::uint32_t string_table;
  std::uint32_t checksum;
  std::uint32_t manifold;
  std::uint32_t tensor_count;
  std::uint32_t page_size;
  std::array<std::byte, 20> reserved;
};
static_assert(sizeof(Header) == kRecordBytes);

struct Hparams {
  std::uint32_t layers;
  std::uint32_t hidden;
  std::uint32_t heads;
  std::uint32_t kv_heads;
  std::uint32_t vocab;
  float rope_base;
  float rope_scale;        // linear scaling factor; 0 is 1
  std::uint32_t head_dim;  // 0: hidden / heads
  std::uint32_t head_dim_swa;
  std::uint32_t sliding_window;
  std::uint32_t shared_kv_layers;
  float logit_softcap;
  std::uint32_t architecture;
  std::uint32_t architecture_flags;
  std::uint64_t reserved;
};
static_assert(sizeof(Hparams) == kRecordBytes);

enum ArchitectureFlag : std::uint32_t {
  kHasWindow = 1 << 1,
  kHasSharedKv = 1 << 2,
  kHasQkNorm = 1 << 3,
  kHasSoftcap = 1 << 4,
};

struct TensorEntry {
  std::uint32_t name;  // in the string table, ended by a zero
  std::uint16_t role;
  std::uint16_t type;
  std::uint32_t layer;  // the number of layers: of no layer
  std::uint32_t rank;
  std::array<std::uint32_t, 4> dims;
  std::uint32_t blob;
  std::uint32_t blob_bytes;
  std::uint64_t source_offset;
  std::uint64_t name_hash;
  std::uint16_t view_type;  // a second view of the tensor, which nothing here reads
  std::uint16_t views;
  std::uint32_t view_blob;
};
static_assert(sizeof(TensorEntry) == kRecordBytes);

struct ScheduleEntry {
  std::uint32_t layer;
  std::uint32_t begin;  // of the layer's blobs
  std::uint32_t end;
  std::uint16_t tensors;
  std::uint16_t roles;  // a bit for each
  std::array<std::byte, 48> reserved;
};
static_assert(sizeof(ScheduleEntry) == kRecordBytes);

// Ten coordinates, which nothing here reads.
struct Manifold {
  std::array<float, 10> coordinates;
  std::array<std::byte, 24> reserved;
};
static_assert(sizeof(Manifold) == kRecordBytes);

// The metadata of the GGUF file, in the gap between manifold table and tokenizer: what the records
// above have no place for. Readers that know nothing of it pass over the gap.
struct MetadataHeader {
  std::array<char, 4> tag;
  std::uint32_t version;
  std::uint64_t count;
  std::uint64_t bytes;  // of the entries, which follow
};
inline constexpr std::array<char, 4> kMetadataTag = {'G', 'G', 'K', 'V'};
inline constexpr std::uint32_t kMetadataVersion = 1;

inline constexpr std::uint16_t kUnknownRole = 0xfffe;
// What a tensor is for, by its name: role and layer; kUnknownRole and no layer for most.
struct Role {
  std::uint16_t role = kUnknownRole;
  std::optional<std::uint32_t> layer;
};
Role role_of(std::string_view name);
// The name that a role stands for; empty for those that have none.
std::string name_of(std::uint16_t role, std::uint32_t layer, std::uint32_t layers);

// FNV-1a, 64 bits.
std::uint64_t hash_of(std::string_view name);
// Some writers keep no more of a name without a role than its hash: "tensor.<16 digits>".
std::string hashed_name(std::uint64_t hash);
// The names behind such hashes: those without a role that families here read.
std::unordered_map<std::uint64_t, std::string> names_behind_hashes(std::uint32_t layers);

// Architectures by number. Several have one number, so it alone does not name the family.
std::uint32_t architecture_number(std::string_view name);
std::string architecture_name(const Hparams& hparams);

// Types that only P64 containers have. Of the first formats() has a row too.
inline constexpr std::uint32_t kTypeQ4KSoa = 112;
inline constexpr std::uint32_t kTypeTernary = 1158;
struct Type {
  std::uint32_t type;
  const char* name;
  std::int64_t (*bytes)(std::int64_t k, std::int64_t rows);  // 0: no such rows
};
const Type* find_type(std::uint32_t type);

}  // namespace lathe::p64
