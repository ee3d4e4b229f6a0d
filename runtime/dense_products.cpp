// Owns the one implementation of DenseProducts: what is resident, and the copies and kernels of a
// product.
#include "lathe/runtime/dense_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <vector>

#include "lathe/codegen/gemm_operand.h"
#include "runtime/device_impl.h"
#include "runtime/device_memory.h"
#include "runtime/no_memory.h"

namespace lathe {
namespace {

constexpr int kFewestRows = 128;
constexpr std::int64_t kMostBlobBytes = std::int64_t{256} << 20;

Format form_of(Precision precision) {
  return precision == Precision::faithful ? Format::f32
         : precision == Precision::half   ? Format::f16
         : precision == Precision::brain  ? Format::bf16
                                          : Format::fp8_e4m3;
}

Error invalid(std::string message) {
  return {Code::invalid_argument, std::move(message), {}};
}

Result<void> check_vectors(std::span<const float> hidden, int batch, int n_in, int n_out,
                           std::span<const float> out) {
  if (batch < 1 || batch > 1 << 20)
    return invalid(fmt::format("A batch of {} vectors; it must have 1 to {}.", batch, 1 << 20));
  const std::size_t given = std::size_t(batch) * std::size_t(n_in);
  if (hidden.size() < given)
    return invalid(fmt::format("{} vectors of {} values are {}, and {} are given.", batch, n_in,
                               given, hidden.size()));
  const std::size_t made = std::size_t(batch) * std::size_t(n_out);
  if (out.size() < made)
    return invalid(fmt::format("{} results of {} values are {}, and there is room for {}.", batch,
                               n_out, made, out.size()));
  return {};
}

class DenseProductsImpl final : public DenseProducts {
 public:
  DenseProductsImpl(std::shared_ptr<DeviceImpl> device, const DenseOptions& options)
      : device_(std::move(device)),
        form_(form_of(options.precision)),
        cache_(options.cache ? options.cache
                             : std::make_shared<DenseWeightCache>(device_->log().hook())) {
    counts_.budget_bytes = std::max<std::int64_t>(0, options.budget_bytes);
  }

  Result<void> prepare() {
    LATHE_TRY(target_covers(gemm_key(1, 1, kFewestRows), device_->target()));
    LATHE_ASSIGN(const ContextScope scope, context().enter());
    LATHE_ASSIGN(stream_, create_stream(context()));
    return {};
  }

  Result<void> batch_gemv(std::span<const float> hidden, int batch, int n_in, int n_out,
                          std::span<const float> weight, std::span<float> out) override {
    if (n_in < 1 || n_out < 1 ||
        weight.size() / std::size_t(n_in) < std::size_t(n_out))  // more is allowed
      return invalid(fmt::format("A weight of {} values is none of {} rows of {}.", weight.size(),
                                 n_out, n_in));
    LATHE_TRY(check_key(gemm_key(n_in, n_out, kFewestRows)));
    LATHE_TRY(check_vectors(hidden, batch, n_in, n_out, out));
    const std::lock_guard lock(mutex_);
    LATHE_ASSIGN(const ContextScope scope, context().enter());
    const StreamRest rest(context(), stream_.get());
    return multiply_once(weight.data(), n_in, n_out, hidden, batch, out);
  }

  Result<void> batch_gemv_cached(const DenseWeightKey& key, std::span<const std::byte> raw,
                                 std::span<const float> hidden, int batch,
                                 std::span<float> out) override {
    return multiply_kept(key, hidden, batch, out, [&] { return cache_->expand(key, raw); });
  }

  Result<void> batch_gemv_cached_only(const DenseWeightKey& key, std::span<const float> hidden,
                                      int batch, std::span<float> out) override {
    return multiply_kept(key, hidden, batch, out, [&] { return cache_->get(key); });
  }

  Result<int> preload(std::span<const DenseSource> sources) override {
    for (const DenseSource& source : sources) {
      LATHE_ASSIGN(const DenseWeightKey key, dense_weight_key(source.raw, source.key.format,
                                                              source.key.n_in, source.key.n_out));
      if (!(key == source.key)) return invalid("A dense weight's key is of other bytes.");
      LATHE_TRY(check_key(gemm_key(key.n_in, key.n_out, kFewestRows)));
    }
    const std::lock_guard lock(mutex_);
    LATHE_ASSIGN(const ContextScope scope, context().enter());
    const StreamRest rest(context(), stream_.get());
    int made = 0;
    for (const auto& [key, raw] : sources) {
      if (Resident* there = find(key)) {
        there->stays = true;
        continue;
      }
      if (counts_.bytes + operand_bytes(key) > counts_.budget_bytes) continue;
      LATHE_ASSIGN(HugePageF32 values,
                   HugePageF32::make(std::size_t(key.n_in) * std::size_t(key.n_out)));
      row(key.format)
          .unpack(raw.data(), std::int64_t(values.values().size()), values.values().data());
      LATHE_ASSIGN(Resident * kept, keep(key, values.values().data()));
      kept->stays = true;
      LATHE_TRY(wait());  // before the values go
      ++made;
    }
    return made;
  }

  Result<bool> preload_blob(std::uint64_t key, std::span<const std::byte> bytes) override {
    if (key == 0) return invalid("A blob's number is 0.");
    if (bytes.empty() || std::int64_t(bytes.size()) > kMostBlobBytes)
      return invalid(
          fmt::format("A blob has {} bytes; it must have 1 to {}.", bytes.size(), kMostBlobBytes));
    const std::lock_guard lock(mutex_);
    if (find_blob(key)) return false;
    const auto size = std::int64_t(bytes.size());
    if (counts_.bytes + size > counts_.budget_bytes)
      return Error{Code::out_of_memory,
                   fmt::format("A blob of {} bytes is more than the {} that are left of {}.", size,
                               counts_.budget_bytes - counts_.bytes, counts_.budget_bytes),
                   {}};
    LATHE_ASSIGN(const ContextScope scope, context().enter());
    LATHE_TRY(make_place_in(blobs_, "a blob"));
    LATHE_ASSIGN(DeviceBuffer buffer, allocate_device(context(), size, "blob"));
    const StreamRest rest(context(), stream_.get());
    LATHE_DRIVER_CALL(driver(), cuMemcpyHtoDAsync, buffer.get(), bytes.data(), bytes.size(),
                      stream_.get());
    LATHE_TRY(wait());
    blobs_.push_back({key, std::move(buffer)});
    counts_.bytes += size;
    return true;
  }

  Result<std::uint64_t> blob_address(std::uint64_t key) const override {
    const std::lock_guard lock(mutex_);
    if (const Blob* blob = find_blob(key)) return std::uint64_t(blob->buffer.get());
    return Error{Code::not_found, fmt::format("No blob has the number {}.", key), {}};
  }

  bool is_resident(const DenseWeightKey& key) const override {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(residents_, [&](const Resident& r) { return r.key == key; });
  }

  DenseCounts counts() const override {
    const std::lock_guard lock(mutex_);
    DenseCounts counts = counts_;
    counts.weights = int(residents_.size());
    counts.blobs = int(blobs_.size());
    return counts;
  }

  DenseWeightCache& cache() const override { return *cache_; }

  void clear() override {
    const std::lock_guard lock(mutex_);
    residents_.clear();
    blobs_.clear();
    counts_.bytes = 0;
  }

 private:
  struct Resident {
    DenseWeightKey key;
    DeviceBuffer operand;
    std::uint64_t used = 0;
    bool stays = false;  // nothing takes its room
  };
  struct Blob {
    std::uint64_t key;
    DeviceBuffer buffer;
  };
  // Grows and never shrinks.
  struct Scratch {
    DeviceBuffer buffer;
    std::int64_t bytes = 0;
  };

  const Context& context() const { return device_->context(); }
  const Driver& driver() const { return device_->driver(); }
  Result<void> wait() const {
    return check(driver(), driver().cuStreamSynchronize(stream_.get()), "cuStreamSynchronize");
  }

  KernelKey gemm_key(int n_in, int n_out, int rows) const {
    const bool grouped = multiplies_in_groups(device_->target());
    return {.type = KernelType::gemm,
            .format = form_,
            .k = n_in,
            .n = n_out,
            .tokens = rows,
            .warps = grouped ? 9 : 8,
            .blocks = device_->profile().multiprocessors,
            .grouped = grouped};
  }
  std::int64_t operand_bytes(const DenseWeightKey& key) const {
    return gemm_operand_bytes(form_, key.n_out, key.n_in);
  }

  Resident* find(const DenseWeightKey& key) {
    for (Resident& r : residents_)
      if (r.key == key) return &r;
    return nullptr;
  }
  const Blob* find_blob(std::uint64_t key) const {
    for (const Blob& blob : blobs_)
      if (blob.key == key) return &blob;
    return nullptr;
  }

  // False: what stays leaves too little.
  bool make_room(std::int64_t bytes) {
    std::int64_t may_go = 0;
    for (const Resident& r : residents_) may_go += r.stays ? 0 : operand_bytes(r.key);
    if (counts_.bytes - may_go + bytes > counts_.budget_bytes) return false;
    while (counts_.bytes + bytes > counts_.budget_bytes) {
      const auto oldest = std::ranges::min_element(
          residents_, {}, [](const Resident& r) { return std::pair(r.stays, r.used); });
      counts_.bytes -= operand_bytes(oldest->key);
      residents_.erase(oldest);
    }
    return true;
  }

  // So that what is kept next allocates nothing.
  template <typename Kept>
  static Result<void> make_place_in(std::vector<Kept>& all, const char* what) {
    return or_no_memory(what, [&]() -> Result<void> {
      if (all.size() == all.capacity()) all.reserve(2 * all.size() + 1);
      return {};
    });
  }

  // There is room.
  Result<Resident*> keep(const DenseWeightKey& key, const float* values) {
    LATHE_TRY(make_place_in(residents_, "a dense weight's place"));
    LATHE_ASSIGN(DeviceBuffer operand,
                 allocate_device(context(), operand_bytes(key), "dense weight"));
    if (auto made = upload_weight(values, key.n_in, key.n_out, operand.get()); !made) {
      driver().cuStreamSynchronize(stream_.get());  // before its memory goes
      return std::move(made).error();
    }
    residents_.push_back({key, std::move(operand), ++clock_, false});
    counts_.bytes += operand_bytes(key);
    return &residents_.back();
  }

  Result<void> reserve(Scratch& scratch, std::int64_t bytes, const char* what) {
    if (scratch.bytes >= bytes) return {};
    if (scratch.bytes > 0)
      LATHE_TRY(wait());  // a caller's allocator need not, and it takes it back
    LATHE_ASSIGN(scratch.buffer, allocate_device(context(), bytes, what));
    scratch.bytes = bytes;
    return {};
  }

  // `given` of `rows` rows of floats as an operand; what the others are does not matter.
  Result<void> make_operand(const float* values, int given, int rows, int k, CUdeviceptr operand) {
    LATHE_TRY(reserve(numbers_, std::int64_t{rows} * k * 4, "numbers of a dense product"));
    const std::size_t bytes = std::size_t(given) * std::size_t(k) * 4;
    LATHE_DRIVER_CALL(driver(), cuMemcpyHtoDAsync, numbers_.buffer.get(), values, bytes,
                      stream_.get());
    const KernelKey key = {
        .type = KernelType::gemm_operand, .format = form_, .k = k, .n = rows, .warps = 8};
    LATHE_ASSIGN(const Kernel* kernel, device_->kernel(key));
    const std::uint64_t arguments[] = {numbers_.buffer.get(), operand};
    return device_->launch(*kernel, arguments, stream_.get());
  }

  Result<void> upload_weight(const float* values, int n_in, int n_out, CUdeviceptr operand) {
    LATHE_TRY(make_operand(values, n_out, n_out, n_in, operand));
    ++counts_.uploads;
    counts_.upload_bytes += std::int64_t{n_in} * n_out * 4;
    return {};
  }

  Result<void> multiply_once(const float* weight, int n_in, int n_out,
                             std::span<const float> hidden, int batch, std::span<float> out) {
    LATHE_TRY(reserve(passing_, gemm_operand_bytes(form_, n_out, n_in), "dense weight"));
    LATHE_TRY(upload_weight(weight, n_in, n_out, passing_.buffer.get()));
    return multiply(passing_.buffer.get(), n_in, n_out, hidden, batch, out);
  }

  // `weight_of` gives the floats of what is not resident.
  template <typename WeightOf>
  Result<void> multiply_kept(const DenseWeightKey& key, std::span<const float> hidden, int batch,
                             std::span<float> out, const WeightOf& weight_of) {
    if (key.n_in < 1 || key.n_out < 1) return invalid("A dense weight's key is of no weight.");
    LATHE_TRY(check_key(gemm_key(key.n_in, key.n_out, kFewestRows)));
    LATHE_TRY(check_vectors(hidden, batch, key.n_in, key.n_out, out));
    const std::lock_guard lock(mutex_);
    LATHE_ASSIGN(const ContextScope scope, context().enter());
    std::shared_ptr<const DenseWeight> weight;  // until all has been copied
    const StreamRest rest(context(), stream_.get());
    Resident* resident = find(key);
    if (!resident) {
      LATHE_ASSIGN(weight, weight_of());
      const float* values = weight->values.values().data();
      if (!make_room(operand_bytes(key)))
        return multiply_once(values, key.n_in, key.n_out, hidden, batch, out);
      LATHE_ASSIGN(resident, keep(key, values));
    }
    resident->used = ++clock_;
    return multiply(resident->operand.get(), key.n_in, key.n_out, hidden, batch, out);
  }

  Result<void> multiply(CUdeviceptr weight, int n_in, int n_out, std::span<const float> hidden,
                        int batch, std::span<float> out) {
    const int rows = std::max(kFewestRows, int(std::bit_ceil(unsigned(batch))));
    LATHE_ASSIGN(const Kernel* kernel, device_->kernel(gemm_key(n_in, n_out, rows)));
    LATHE_TRY(reserve(operand_, gemm_operand_bytes(form_, rows, n_in), "vectors of a product"));
    LATHE_TRY(reserve(results_, std::int64_t{rows} * n_out * 4, "results of a product"));
    LATHE_TRY(make_operand(hidden.data(), batch, rows, n_in, operand_.buffer.get()));
    const std::uint64_t arguments[] = {operand_.buffer.get(), weight, results_.buffer.get()};
    LATHE_TRY(device_->launch(*kernel, arguments, stream_.get()));
    const std::size_t bytes = std::size_t(batch) * std::size_t(n_out) * 4;
    LATHE_DRIVER_CALL(driver(), cuMemcpyDtoHAsync, out.data(), results_.buffer.get(), bytes,
                      stream_.get());
    ++counts_.products;
    return wait();
  }

  // In order of use: each needs those above it.
  std::shared_ptr<DeviceImpl> device_;
  const Format form_;
  const std::shared_ptr<DenseWeightCache> cache_;
  mutable std::mutex mutex_;
  Stream stream_;
  Scratch numbers_, operand_, passing_, results_;
  std::vector<Resident> residents_;
  std::vector<Blob> blobs_;
  DenseCounts counts_;
  std::uint64_t clock_ = 0;
};

}  // namespace

Result<std::unique_ptr<DenseProducts>> DenseProducts::open(std::shared_ptr<Device> device,
                                                           const DenseOptions& options) {
  using Products = std::unique_ptr<DenseProducts>;
  return or_no_memory("dense products", [&]() -> Result<Products> {
    std::shared_ptr<DeviceImpl> own = std::dynamic_pointer_cast<DeviceImpl>(std::move(device));
    if (!own) return Error{Code::invalid_argument, "Dense products need a device of Lathe's.", {}};
    auto products = std::make_unique<DenseProductsImpl>(std::move(own), options);
    LATHE_TRY(products->prepare());
    return Products(std::move(products));
  });
}

}  // namespace lathe
