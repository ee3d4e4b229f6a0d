// Owns the one implementation of Workbench: a stream, two events, buffers, and the reads that leave
// nothing of a kernel's arguments in the cache.
#include "lathe/runtime/workbench.h"

#include <algorithm>
#include <new>
#include <optional>

#include "runtime/device_impl.h"
#include "runtime/device_memory.h"
#include "runtime/read_rate.h"

namespace lathe {
namespace {

// While the device reads, the host queues the launches: it must be done before the first one runs.
// A pass over three times the cache takes some 30 us, a launch the host less than 4.
constexpr int kLaunchesPerPass = 4;
constexpr std::int64_t kCacheTimes = 3;

class WorkbenchImpl final : public Workbench {
 public:
  explicit WorkbenchImpl(std::shared_ptr<DeviceImpl> device) : device_(std::move(device)) {}

  // A caller's allocator need not wait for what was launched before it takes memory back.
  ~WorkbenchImpl() override { clear(); }

  Result<void> prepare() {
    LATHE_ASSIGN(const ContextScope scope, context().enter());
    LATHE_ASSIGN(stream_, create_stream(context()));
    LATHE_ASSIGN(begin_, create_event(context(), CU_EVENT_DEFAULT));
    LATHE_ASSIGN(end_, create_event(context(), CU_EVENT_DEFAULT));
    return {};
  }

  Device& device() const override { return *device_; }
  int multiprocessors() const override { return device_->profile().multiprocessors; }
  std::int64_t cache_bytes() const override { return device_->profile().cache_bytes; }

  Result<std::int64_t> free_bytes() const override {
    LATHE_ASSIGN(const ContextScope scope, context().enter());
    std::size_t free = 0, total = 0;
    LATHE_DRIVER_CALL(driver(), cuMemGetInfo, &free, &total);
    return std::int64_t(free);
  }

  Result<std::uint64_t> allocate(std::int64_t bytes) override {
    LATHE_ASSIGN(const ContextScope scope, context().enter());
    LATHE_ASSIGN(DeviceBuffer buffer, allocate_device(context(), bytes, "kernel's arguments"));
    buffers_.push_back(std::move(buffer));
    return std::uint64_t(buffers_.back().get());
  }

  void clear() override {
    if (const auto scope = context().enter(); scope && stream_.get())
      driver().cuStreamSynchronize(stream_.get());
    buffers_.clear();
  }

  Result<void> write(std::uint64_t to, std::span<const std::byte> bytes) override {
    if (bytes.empty()) return {};
    LATHE_ASSIGN(const ContextScope scope, context().enter());
    LATHE_DRIVER_CALL(driver(), cuMemcpyHtoDAsync, to, bytes.data(), bytes.size(), stream_.get());
    return wait();
  }

  Result<void> read(std::span<std::byte> bytes, std::uint64_t from) override {
    if (bytes.empty()) return {};
    LATHE_ASSIGN(const ContextScope scope, context().enter());
    LATHE_DRIVER_CALL(driver(), cuMemcpyDtoHAsync, bytes.data(), from, bytes.size(), stream_.get());
    return wait();
  }

  Result<void> run(const Kernel& kernel, std::span<const std::uint64_t> arguments) override {
    LATHE_TRY(device_->launch(kernel, arguments, stream_.get()));
    LATHE_ASSIGN(const ContextScope scope, context().enter());
    return wait();
  }

  Result<double> time(const Kernel& kernel, std::span<const std::vector<std::uint64_t>> arguments,
                      int launches) override {
    if (arguments.empty() || launches < 1) {
      return Error{Code::invalid_argument, "There are no launches to be timed.", {}};
    }
    LATHE_ASSIGN(const ContextScope scope, context().enter());
    LATHE_TRY(displace(1 + launches / kLaunchesPerPass));
    LATHE_DRIVER_CALL(driver(), cuEventRecord, begin_.get(), stream_.get());
    for (int i = 0; i < launches; ++i) {
      LATHE_TRY(
          device_->launch(kernel, arguments[std::size_t(i) % arguments.size()], stream_.get()));
    }
    LATHE_DRIVER_CALL(driver(), cuEventRecord, end_.get(), stream_.get());
    LATHE_TRY(wait());
    float milliseconds = 0;
    LATHE_DRIVER_CALL(driver(), cuEventElapsedTime, &milliseconds, begin_.get(), end_.get());
    return double(milliseconds) / 1000 / launches;
  }

  Result<double> read_rate() override {
    LATHE_ASSIGN(const ContextScope scope, context().enter());
    return measure_read_rate(*device_, stream_.get());
  }

 private:
  const Context& context() const { return device_->context(); }
  const Driver& driver() const { return device_->driver(); }

  Result<void> wait() const {
    return check(driver(), driver().cuStreamSynchronize(stream_.get()), "cuStreamSynchronize");
  }

  // Fills the cache with memory that no kernel takes. Reads leave nothing to be written back.
  Result<void> displace(int passes) {
    if (!reader_) {
      const std::int64_t blocks = kCacheTimes * cache_bytes() / ReadKernel::kBlockBytes + 1;
      displacing_bytes_ = blocks * ReadKernel::kBlockBytes;
      LATHE_ASSIGN(displacing_, allocate_device(context(), displacing_bytes_ + 16,
                                                "memory that displaces the cache"));
      LATHE_ASSIGN(ReadKernel reader, ReadKernel::load(*device_));
      reader_.emplace(std::move(reader));
    }
    for (int pass = 0; pass < passes; ++pass) {
      LATHE_TRY(reader_->launch(driver(), displacing_.get(), displacing_bytes_, stream_.get()));
    }
    return {};
  }

  // In order of use: each needs those above it.
  std::shared_ptr<DeviceImpl> device_;
  Stream stream_;
  Event begin_, end_;
  std::vector<DeviceBuffer> buffers_;
  DeviceBuffer displacing_;
  std::int64_t displacing_bytes_ = 0;
  std::optional<ReadKernel> reader_;
};

}  // namespace

Result<std::unique_ptr<Workbench>> Workbench::open(std::shared_ptr<Device> device) {
  try {
    std::shared_ptr<DeviceImpl> own = std::dynamic_pointer_cast<DeviceImpl>(std::move(device));
    if (!own) return Error{Code::invalid_argument, "A workbench needs a device of Lathe's.", {}};
    auto bench = std::make_unique<WorkbenchImpl>(std::move(own));
    LATHE_TRY(bench->prepare());
    return std::unique_ptr<Workbench>(std::move(bench));
  } catch (const std::bad_alloc&) {
    return Error{Code::out_of_memory, "There is no host memory for a workbench.", {}};
  }
}

}  // namespace lathe
