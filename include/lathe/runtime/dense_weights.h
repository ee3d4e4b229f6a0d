// Owns dense weights in host memory: matrices of f32 that were expanded once from what a model file
// has, kept for products of many vectors (lathe/runtime/dense_products.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "lathe/codegen/format.h"
#include "lathe/codegen/result.h"
#include "lathe/runtime/log.h"

namespace lathe {

// Of one matrix: 192 MiB.
inline constexpr std::int64_t kMostDenseElements = std::int64_t{48} << 20;
// That a cache keeps.
inline constexpr std::size_t kMostDenseWeights = 24;
inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

// FNV-1a of 64 bits over all bytes, then over the two sizes as one step each:
// h = (h ^ n_in) p, h = (h ^ n_out) p. What another system's caches are keyed by; it knows nothing
// of the type and takes a nanosecond per byte, so nothing here is found by it.
std::uint64_t weight_fingerprint(std::span<const std::byte> raw, std::uint64_t n_in,
                                 std::uint64_t n_out);

// What a matrix is found by: its bytes as they are in the file, hashed, and what they mean.
struct DenseWeightKey {
  std::uint64_t digest = 0;  // XXH3-64
  std::int64_t bytes = 0;
  Format format = Format::f32;
  int n_in = 0;   // values of a row
  int n_out = 0;  // rows

  friend bool operator==(const DenseWeightKey&, const DenseWeightKey&) = default;
};
// invalid_argument where the bytes are not those of n_out rows of n_in values, either is not
// positive, or the matrix has more than kMostDenseElements.
Result<DenseWeightKey> dense_weight_key(std::span<const std::byte> raw, Format format, int n_in,
                                        int n_out);

// Floats in memory that is aligned to 2 MiB and that the system is asked to make of huge pages; if
// it does not, they are as good. Begins as zeros; of no floats it has no memory. Moves, and says
// what it copies.
class HugePageF32 {
 public:
  HugePageF32() = default;
  // out_of_memory names the bytes.
  static Result<HugePageF32> make(std::size_t count);
  Result<HugePageF32> copy() const;

  std::span<float> values() { return {values_.get(), count_}; }
  std::span<const float> values() const { return {values_.get(), count_}; }

 private:
  struct Free {
    void operator()(float* values) const;
  };
  std::unique_ptr<float, Free> values_;
  std::size_t count_ = 0;
};

// A matrix of n_out rows of n_in floats. Never changes.
struct DenseWeight {
  DenseWeightKey key;
  HugePageF32 values;
};

// The last kMostDenseWeights matrices that somebody used. Any number of threads at once; a matrix
// that is dropped lives on with those who have it.
class DenseWeightCache {
 public:
  // `log` is told of each matrix that is kept and each that is dropped for another; a use of what
  // is there makes no line.
  explicit DenseWeightCache(LogHook log = {}) : log_(std::move(log)) {}

  // Keeps a copy of the floats, which are n_in * n_out.
  Result<void> put(const DenseWeightKey& key, std::span<const float> values);
  // The same of what `fill` writes into rows of zeros; false from it: nothing is kept, cancelled.
  // It runs on this thread, without a lock, and does not throw.
  Result<void> fill(const DenseWeightKey& key, const std::function<bool(std::span<float>)>& fill);
  // Expands a matrix of any format, unless it is there.
  Result<std::shared_ptr<const DenseWeight>> expand(const DenseWeightKey& key,
                                                    std::span<const std::byte> raw);
  // Null where it is not. Counts as a use.
  std::shared_ptr<const DenseWeight> find(const DenseWeightKey& key);
  // The same; not_found where it is not.
  Result<std::shared_ptr<const DenseWeight>> get(const DenseWeightKey& key);
  // Does not count as one.
  bool contains(const DenseWeightKey& key) const;
  std::size_t size() const;
  void clear();

 private:
  struct Entry {
    std::shared_ptr<const DenseWeight> weight;
    std::uint64_t used = 0;
  };
  void keep(std::shared_ptr<const DenseWeight> weight);
  void tell(const char* event, const DenseWeightKey& key) const;
  Result<std::shared_ptr<const DenseWeight>> keep(const DenseWeightKey& key, HugePageF32 values);

  const LogHook log_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  std::uint64_t clock_ = 0;
};

}  // namespace lathe
