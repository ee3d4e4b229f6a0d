// Owns the cache of dense weights in host memory and the keys they are found by.
#include "lathe/runtime/dense_weights.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <sys/mman.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "runtime/log.h"
#include "runtime/no_memory.h"

namespace lathe {
namespace {

std::size_t page_bytes(std::size_t count) {
  return (count * sizeof(float) + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
}

Result<void> check_shape(int n_in, int n_out) {
  if (n_in < 1 || n_out < 1)
    return Error{Code::invalid_argument,
                 fmt::format("A dense weight of {} rows of {} values has none.", n_out, n_in),
                 {}};
  if (std::int64_t{n_in} * n_out > kMostDenseElements)
    return Error{Code::invalid_argument,
                 fmt::format("A dense weight of {} rows of {} values has more than {}.", n_out,
                             n_in, kMostDenseElements),
                 {}};
  return {};
}

// A matrix of that format and shape has so many.
Result<void> check_bytes(std::int64_t bytes, Format format, int n_in, int n_out) {
  LATHE_TRY(check_shape(n_in, n_out));
  const FormatRow& of = row(format);
  if (n_in % of.block != 0)
    return Error{Code::invalid_argument,
                 fmt::format("Rows of {} values are not whole blocks of {}, which has {}.", n_in,
                             of.name, of.block),
                 {}};
  const std::int64_t wanted = n_out * row_bytes(format, n_in);
  if (bytes != wanted)
    return Error{Code::invalid_argument,
                 fmt::format("{} rows of {} values in {} are {} bytes, not {}.", n_out, n_in,
                             of.name, wanted, bytes),
                 {}};
  return {};
}

std::size_t values_of(const DenseWeightKey& key) {
  return std::size_t(key.n_in) * std::size_t(key.n_out);
}

}  // namespace

std::uint64_t weight_fingerprint(std::span<const std::byte> raw, std::uint64_t n_in,
                                 std::uint64_t n_out) {
  constexpr std::uint64_t kOffset = 0xcbf29ce484222325, kPrime = 0x100000001b3;
  std::uint64_t hash = kOffset;
  for (const std::byte byte : raw) hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * kPrime;
  hash = (hash ^ n_in) * kPrime;
  return (hash ^ n_out) * kPrime;
}

Result<DenseWeightKey> dense_weight_key(std::span<const std::byte> raw, Format format, int n_in,
                                        int n_out) {
  LATHE_TRY(check_bytes(std::int64_t(raw.size()), format, n_in, n_out));
  return DenseWeightKey{XXH3_64bits(raw.data(), raw.size()), std::int64_t(raw.size()), format, n_in,
                        n_out};
}

void HugePageF32::Free::operator()(float* values) const {
  ::operator delete (values, std::align_val_t{kHugePageBytes});
}

Result<HugePageF32> HugePageF32::make(std::size_t count) {
  HugePageF32 out;
  if (count == 0) return out;
  const std::size_t bytes = page_bytes(count);
  void* memory = ::operator new (bytes, std::align_val_t{kHugePageBytes}, std::nothrow);
  if (!memory) return no_memory("a dense weight").with("needed", fmt::format("{}", bytes));
  madvise(memory, bytes, MADV_HUGEPAGE);  // an advice: without it pages are smaller
  std::memset(memory, 0, bytes);
  out.values_.reset(static_cast<float*>(memory));
  out.count_ = count;
  return out;
}

Result<HugePageF32> HugePageF32::copy() const {
  LATHE_ASSIGN(HugePageF32 out, make(count_));
  std::ranges::copy(values(), out.values().begin());
  return out;
}

Result<void> DenseWeightCache::put(const DenseWeightKey& key, std::span<const float> values) {
  if (values.size() != values_of(key))
    return Error{Code::invalid_argument,
                 fmt::format("A dense weight of {} rows of {} values is given {} of them.",
                             key.n_out, key.n_in, values.size()),
                 {}};
  return fill(key, [&](std::span<float> to) {
    std::ranges::copy(values, to.begin());
    return true;
  });
}

Result<void> DenseWeightCache::fill(const DenseWeightKey& key,
                                    const std::function<bool(std::span<float>)>& fill) {
  LATHE_TRY(check_shape(key.n_in, key.n_out));
  if (!fill)
    return Error{Code::invalid_argument, "There is no function that fills a dense weight.", {}};
  LATHE_ASSIGN(HugePageF32 values, HugePageF32::make(values_of(key)));
  if (!fill(values.values()))
    return Error{Code::cancelled, "Who was to fill a dense weight did not.", {}};
  LATHE_TRY(keep(key, std::move(values)));
  return {};
}

Result<std::shared_ptr<const DenseWeight>> DenseWeightCache::expand(
    const DenseWeightKey& key, std::span<const std::byte> raw) {
  if (auto there = find(key)) return there;
  LATHE_TRY(check_bytes(std::int64_t(raw.size()), key.format, key.n_in, key.n_out));
  LATHE_ASSIGN(HugePageF32 values, HugePageF32::make(values_of(key)));
  row(key.format).unpack(raw.data(), std::int64_t{key.n_in} * key.n_out, values.values().data());
  return keep(key, std::move(values));
}

Result<std::shared_ptr<const DenseWeight>> DenseWeightCache::keep(const DenseWeightKey& key,
                                                                  HugePageF32 values) {
  using Weight = std::shared_ptr<const DenseWeight>;
  return or_no_memory("a dense weight's place in the cache", [&]() -> Result<Weight> {
    Weight weight = std::make_shared<const DenseWeight>(DenseWeight{key, std::move(values)});
    keep(weight);
    return weight;
  });
}

std::shared_ptr<const DenseWeight> DenseWeightCache::find(const DenseWeightKey& key) {
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) {
    if (!(entry.weight->key == key)) continue;
    entry.used = ++clock_;
    return entry.weight;
  }
  return nullptr;
}

Result<std::shared_ptr<const DenseWeight>> DenseWeightCache::get(const DenseWeightKey& key) {
  if (auto weight = find(key)) return weight;
  return Error{Code::not_found,
               fmt::format("The dense weight of {} rows of {} values is not in the cache.",
                           key.n_out, key.n_in),
               {}};
}

bool DenseWeightCache::contains(const DenseWeightKey& key) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(entries_,
                             [&](const Entry& entry) { return entry.weight->key == key; });
}

std::size_t DenseWeightCache::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

void DenseWeightCache::clear() {
  std::vector<Entry> dropped;  // its memory goes back without the lock
  const std::lock_guard lock(mutex_);
  dropped.swap(entries_);
  clock_ = 0;
}

void DenseWeightCache::keep(std::shared_ptr<const DenseWeight> weight) {
  const DenseWeightKey key = weight->key;
  std::shared_ptr<const DenseWeight> dropped;
  {
    const std::lock_guard lock(mutex_);
    auto place = std::ranges::find_if(entries_,
                                      [&](const Entry& entry) { return entry.weight->key == key; });
    if (place == entries_.end() && entries_.size() < kMostDenseWeights) {
      entries_.reserve(kMostDenseWeights);
      place = entries_.insert(entries_.end(), Entry{});
    } else if (place == entries_.end()) {
      place = std::ranges::min_element(entries_, {}, &Entry::used);
    }
    dropped = std::exchange(place->weight, std::move(weight));
    place->used = ++clock_;
  }
  if (dropped && !(dropped->key == key)) tell("dropped", dropped->key);
  tell("kept", key);
}

void DenseWeightCache::tell(const char* event, const DenseWeightKey& key) const {
  if (!log_) return;
  const LogLine line = LogLine("dense", event)
                           .field("format", row(key.format).name)
                           .field("k", key.n_in)
                           .field("n", key.n_out)
                           .field("digest", fmt::format("{:016x}", key.digest))
                           .field("weights", size());
  log_(LogLevel::info, line.text());
}

}  // namespace lathe
