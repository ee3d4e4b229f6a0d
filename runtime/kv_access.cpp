// Owns the way of keys and values between the caches of a sequence and the host.
#include "runtime/kv_access.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "codegen/kernels/cached_rows.h"
#include "codegen/kernels/kv_atoms.h"
#include "runtime/model_fingerprint.h"
#include "runtime/no_memory.h"

namespace lathe {
namespace {

constexpr int kMostHeadDim = 256;  // of a cache of atoms

KernelKey heads_of(const Plan& plan) {
  KernelKey key;
  key.format = plan.options.kv;
  key.kv_heads = plan.spec.kv_heads;
  key.head_dim = plan.spec.head_dim;
  key.atoms = plan.options.atoms.count;
  key.terms = plan.options.atoms.terms;
  return key;
}

// The table of a layer's keys or values; null where the cache has no atoms.
const float* atoms_of(const Plan& plan, KvPart part, int layer) {
  const int table = plan.atom_table(layer, part == KvPart::values);
  return table < 0 ? nullptr : plan.tables[std::size_t(table)].values.data();
}

// One vector of a position that lies at `rows`, as number `vector` of its position's.
std::uint32_t* words_of(const KernelKey& key, std::byte* rows, std::int64_t vector) {
  return reinterpret_cast<std::uint32_t*>(rows) + vector * key.terms;
}

}  // namespace

Result<void> move_on_host(std::span<const KvCopy> copies, KvMove move) {
  for (const KvCopy& copy : copies) {
    auto* cache = reinterpret_cast<std::byte*>(copy.cache);
    if (move == KvMove::clear)
      std::memset(cache, 0, copy.bytes);
    else if (move == KvMove::to_host)
      std::memcpy(copy.host, cache, copy.bytes);
    else
      std::memcpy(cache, copy.host, copy.bytes);
  }
  return {};
}

Result<void> move_on_device(const Driver& driver, CUstream stream, std::span<const KvCopy> copies,
                            KvMove move) {
  const auto queue = [&]() -> Result<void> {
    for (const KvCopy& copy : copies) {
      if (move == KvMove::clear)
        LATHE_DRIVER_CALL(driver, cuMemsetD8Async, copy.cache, 0, copy.bytes, stream);
      else if (move == KvMove::to_host)
        LATHE_DRIVER_CALL(driver, cuMemcpyDtoHAsync, copy.host, copy.cache, copy.bytes, stream);
      else
        LATHE_DRIVER_CALL(driver, cuMemcpyHtoDAsync, copy.cache, copy.host, copy.bytes, stream);
    }
    return {};
  };
  Result<void> queued = queue();
  if (!queued) {
    driver.cuStreamSynchronize(stream);
    return queued;
  }
  LATHE_DRIVER_CALL(driver, cuStreamSynchronize, stream);
  return {};
}

std::size_t KvAccess::row_bytes() const {
  return std::size_t(plan_.kv_bytes_per_position());
}

void KvAccess::add_rows(KvPart part, int layer, int first, int positions, std::byte* host,
                        std::vector<KvCopy>& copies) const {
  const auto& caches = part == KvPart::keys ? addresses_.kv_k : addresses_.kv_v;
  while (positions > 0) {
    std::uint64_t row = std::uint64_t(places_.first_row) + std::uint64_t(first);
    int run = positions;
    if (!places_.pages.empty()) {
      row = std::uint64_t(row_in_pages(places_.pages.data(), first));
      run = std::min(positions, kPagePositions - first % kPagePositions);
    }
    const std::size_t bytes = std::size_t(run) * row_bytes();
    copies.push_back({caches[std::size_t(layer)] + row * row_bytes(), host, bytes});
    if (host) host += bytes;
    first += run;
    positions -= run;
  }
}

std::vector<KvCopy> KvAccess::rows_of(const KvRange& range, std::byte* host) const {
  std::vector<KvCopy> copies;
  add_rows(range.part, range.layer, range.first, range.positions, host, copies);
  return copies;
}

std::vector<KvCopy> KvAccess::all_rows(int positions, std::byte* host) const {
  std::vector<KvCopy> copies;
  for (int layer = 0; layer < plan_.spec.layers; ++layer) {
    for (const KvPart part : {KvPart::keys, KvPart::values}) {
      add_rows(part, layer, 0, positions, host, copies);
      if (host) host += std::size_t(positions) * row_bytes();
    }
  }
  return copies;
}

Result<void> KvAccess::check_length(int length) const {
  if (length >= 0 && length <= std::ssize(tokens_)) return {};
  return Error{Code::out_of_range,
               fmt::format("There are {} positions; {} were asked for.", tokens_.size(), length),
               {}};
}

Result<void> KvAccess::check_range(const KvRange& range, std::size_t values) const {
  if (range.part != KvPart::keys && range.part != KvPart::values)
    return Error{Code::invalid_argument, "A KV range is of keys or of values.", {}};
  if (range.layer < 0 || range.layer >= plan_.spec.layers)
    return Error{
        Code::out_of_range,
        fmt::format("There is no layer {}: the model has {}.", range.layer, plan_.spec.layers),
        {}};
  if (range.first < 0 || range.positions < 0 ||
      std::int64_t{range.first} + range.positions > std::ssize(tokens_))
    return Error{Code::out_of_range,
                 fmt::format("The {} positions from {} on are not all there: there are {}.",
                             range.positions, range.first, tokens_.size()),
                 {}};
  const std::int64_t wanted = range.positions * width();
  if (std::int64_t(values) == wanted) return {};
  return Error{
      Code::invalid_argument,
      fmt::format("{} positions of {} KV heads of {} are {} values, not {}.", range.positions,
                  plan_.spec.kv_heads, plan_.spec.head_dim, wanted, values),
      {}};
}

void KvAccess::unpack(KvPart part, int layer, std::byte* rows, int positions, float* values) const {
  const KernelKey key = heads_of(plan_);
  const float* atoms = atoms_of(plan_, part, layer);
  double sum[kMostHeadDim];
  for (int p = 0; p < positions; ++p) {
    for (int head = 0; head < key.kv_heads; ++head, values += key.head_dim) {
      if (!atoms) {
        load_cached(key, cache_row(key, rows, p, head), values);
        continue;
      }
      decode_vector(key, words_of(key, rows, std::int64_t{p} * key.kv_heads + head), atoms, sum);
      std::transform(sum, sum + key.head_dim, values, [](double v) { return float(v); });
    }
  }
}

void KvAccess::pack(KvPart part, int layer, const float* values, int positions,
                    std::byte* rows) const {
  const KernelKey key = heads_of(plan_);
  const float* atoms = atoms_of(plan_, part, layer);
  for (int p = 0; p < positions; ++p) {
    for (int head = 0; head < key.kv_heads; ++head, values += key.head_dim) {
      if (!atoms)
        store_cached(key, values, cache_row(key, rows, p, head));
      else
        encode_vector(key, values, atoms,
                      words_of(key, rows, std::int64_t{p} * key.kv_heads + head));
    }
  }
}

Result<void> KvAccess::read(const KvRange& range, std::span<float> values) const {
  LATHE_TRY(check_range(range, values.size()));
  if (range.positions == 0) return {};
  return or_no_memory("keys and values on their way to the caller", [&]() -> Result<void> {
    std::vector<std::byte> rows(std::size_t(range.positions) * row_bytes());
    LATHE_TRY(move_(rows_of(range, rows.data()), KvMove::to_host));
    unpack(range.part, range.layer, rows.data(), range.positions, values.data());
    return {};
  });
}

Result<void> KvAccess::write(const KvRange& range, std::span<const float> values) const {
  LATHE_TRY(check_range(range, values.size()));
  if (range.positions == 0) return {};
  return or_no_memory("keys and values on their way to the cache", [&]() -> Result<void> {
    std::vector<std::byte> rows(std::size_t(range.positions) * row_bytes());
    pack(range.part, range.layer, values.data(), range.positions, rows.data());
    return move_(rows_of(range, rows.data()), KvMove::to_cache);
  });
}

Result<KvCapture> KvAccess::capture(int positions, int most) const {
  LATHE_TRY(check_length(positions));
  if (most < 0)
    return Error{Code::invalid_argument,
                 fmt::format("A capture of {} vectors of each layer cannot be.", most),
                 {}};
  const int heads = plan_.spec.kv_heads;
  KvCapture capture;
  capture.head_dim = plan_.spec.head_dim;
  capture.vectors = int(std::min<std::int64_t>(std::int64_t{positions} * heads, most));
  const int needed = (capture.vectors + heads - 1) / heads;  // positions
  return or_no_memory("a capture of keys and values", [&]() -> Result<KvCapture> {
    const std::size_t of_layer = std::size_t(capture.vectors) * std::size_t(capture.head_dim);
    capture.keys.resize(std::size_t(plan_.spec.layers) * of_layer);
    capture.values.resize(capture.keys.size());
    const std::size_t parts = 2 * std::size_t(plan_.spec.layers);
    const std::size_t part_bytes = std::size_t(needed) * row_bytes();
    std::vector<std::byte> rows(parts * part_bytes);
    LATHE_TRY(move_(all_rows(needed, rows.data()), KvMove::to_host));
    std::vector<float> unpacked(std::size_t(needed * width()));
    for (std::size_t i = 0; i < parts; ++i) {
      const KvPart part = i % 2 == 0 ? KvPart::keys : KvPart::values;
      unpack(part, int(i / 2), rows.data() + i * part_bytes, needed, unpacked.data());
      std::vector<float>& to = part == KvPart::keys ? capture.keys : capture.values;
      std::copy_n(unpacked.begin(), of_layer,
                  to.begin() + std::ptrdiff_t(i / 2) * std::ptrdiff_t(of_layer));
    }
    return std::move(capture);
  });
}

Result<KvSnapshot> KvAccess::snapshot(int length, const GgufFile& file) const {
  LATHE_TRY(check_length(length));
  KvSnapshot snapshot;
  return or_no_memory("a snapshot of keys and values", [&]() -> Result<KvSnapshot> {
    static std::atomic<std::uint64_t> last = 0;
    snapshot.number_ = ++last;
    snapshot.model_ = model_fingerprint(file, plan_);
    snapshot.format_ = plan_.options.kv;
    snapshot.kv_ = plan_.kv_text();
    snapshot.tokens_.assign(tokens_.begin(), tokens_.begin() + length);
    snapshot.rows_.resize(2 * std::size_t(plan_.spec.layers) * std::size_t(length) * row_bytes());
    LATHE_TRY(move_(all_rows(length, snapshot.rows_.data()), KvMove::to_host));
    return std::move(snapshot);
  });
}

Result<void> KvAccess::check(const KvSnapshot& snapshot, const GgufFile& file) const {
  if (snapshot.kv_ != plan_.kv_text())
    return Error{Code::invalid_argument,
                 fmt::format("The snapshot is of a KV cache in {}, this one is in {}.",
                             snapshot.kv_, plan_.kv_text()),
                 {}};
  if (snapshot.model_ != model_fingerprint(file, plan_))
    return Error{Code::invalid_argument,
                 fmt::format("The snapshot is of another model than {}{}.", file.path(),
                             plan_.options.atoms.count > 0 ? ", or of other atoms" : ""),
                 {}};
  if (snapshot.length() > plan_.options.context)
    return Error{Code::out_of_range,
                 fmt::format("The snapshot has {} positions, and the context has room for {}.",
                             snapshot.length(), plan_.options.context),
                 {}};
  return {};
}

Result<void> KvAccess::restore(const KvSnapshot& snapshot) const {
  // Only read from.
  auto* rows = const_cast<std::byte*>(snapshot.rows_.data());
  return or_no_memory("the restoring of keys and values", [&]() -> Result<void> {
    return move_(all_rows(snapshot.length(), rows), KvMove::to_cache);
  });
}

Result<void> KvAccess::clear() const {
  return or_no_memory("the clearing of keys and values", [&]() -> Result<void> {
    return move_(all_rows(plan_.options.context, nullptr), KvMove::clear);
  });
}

}  // namespace lathe
