// Owns products of many vectors with dense weights on a device: y = x W^T by the kernel gemm, with
// weights that come each time, that a cache in host memory has, or that are resident.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "lathe/codegen/result.h"
#include "lathe/runtime/dense_weights.h"
#include "lathe/runtime/device.h"

namespace lathe {

// faithful: 22 bits of each number, 1e-6 of the result; half: f16, 1e-3; brain: bf16, 4e-3; eight:
// e4m3 with a factor for each row, from sm_89 on, 0.13, and 3.4e-2 of many random numbers.
enum class Precision : std::uint8_t { faithful, half, brain, eight };

struct DenseOptions {
  Precision precision = Precision::faithful;
  // Of device memory that resident weights and blobs take at most.
  std::int64_t budget_bytes = std::int64_t{2} << 30;
  // Of which products take weights, and where they leave them; null: one of its own.
  std::shared_ptr<DenseWeightCache> cache = {};
};

struct DenseSource {
  DenseWeightKey key;
  std::span<const std::byte> raw;
};

struct DenseCounts {
  int weights = 0;  // resident
  int blobs = 0;
  std::int64_t bytes = 0;  // that both take
  std::int64_t budget_bytes = 0;
  std::int64_t products = 0;      // so far
  std::int64_t uploads = 0;       // of weights
  std::int64_t upload_bytes = 0;  // as f32
};

// Any number of threads at once: one product at a time, the others wait. Each call waits for its
// end on a stream of its own. Errors name what is wrong before anything is launched.
//
// Hidden states are `batch` rows of n_in floats, results `batch` rows of n_out, both at least so
// long. A kernel is made for each n_in, n_out and power of two of rows, from 128 on.
class DenseProducts {
 public:
  // no_driver where there is no GPU, not_eligible before sm_80, or of `eight` sm_89. Keeps the
  // device open.
  static Result<std::unique_ptr<DenseProducts>> open(std::shared_ptr<Device> device,
                                                     const DenseOptions& options);
  virtual ~DenseProducts() = default;

  // With n_out rows of n_in floats that are uploaded for this product alone.
  virtual Result<void> batch_gemv(std::span<const float> hidden, int batch, int n_in, int n_out,
                                  std::span<const float> weight, std::span<float> out) = 0;
  // With a weight that is resident or in the cache; else it is expanded from `raw` into the cache
  // first. What is not resident becomes so: for it others make room that came this way, those first
  // that were not used for longest. What the budget cannot hold is uploaded each time.
  virtual Result<void> batch_gemv_cached(const DenseWeightKey& key, std::span<const std::byte> raw,
                                         std::span<const float> hidden, int batch,
                                         std::span<float> out) = 0;
  // The same, but not_found where the weight is neither resident nor in the cache.
  virtual Result<void> batch_gemv_cached_only(const DenseWeightKey& key,
                                              std::span<const float> hidden, int batch,
                                              std::span<float> out) = 0;

  // Makes weights resident until clear(). The result is how many of them were not before; those
  // that the budget has no room for are left out, and nothing makes room for them.
  virtual Result<int> preload(std::span<const DenseSource> sources) = 0;
  // Bytes of the caller's, such as norms, of 256 MiB at most, under a number that is not 0; false
  // where they are resident already. out_of_memory beyond the budget.
  virtual Result<bool> preload_blob(std::uint64_t key, std::span<const std::byte> bytes) = 0;
  // The device address; not_found.
  virtual Result<std::uint64_t> blob_address(std::uint64_t key) const = 0;

  virtual bool is_resident(const DenseWeightKey& key) const = 0;
  virtual DenseCounts counts() const = 0;
  virtual DenseWeightCache& cache() const = 0;
  // Frees all that is resident; the cache keeps what it has.
  virtual void clear() = 0;
};

}  // namespace lathe
