// Owns the one implementation of Device: a context, its tool chain, cache and module map.
#pragma once

#include <memory>
#include <optional>

#include "lathe/runtime/device.h"
#include "runtime/module_map.h"

namespace lathe {

struct SessionOptions;

class DeviceImpl final : public Device {
 public:
  static Result<std::shared_ptr<DeviceImpl>> open(const DeviceOptions& options,
                                                  const Platform& platform);

  const Target& target() const override { return context_.target(); }
  const GpuProfile& profile() const override { return context_.profile(); }
  std::string description() const override;
  std::string assembler() const override { return toolchain_->assembler().name(); }
  Result<const Kernel*> kernel(const KernelKey& key) override { return map_->get(key); }
  Result<const Kernel*> kernel(const CustomKernel& custom) override { return map_->get(custom); }
  Result<void> prepare(std::span<const KernelKey> keys, const Progress& progress) override {
    return map_->prepare(keys, progress);
  }
  Result<void> prepare(std::span<const KernelKey> keys, const Progress& progress,
                       const std::function<bool()>& cancelled) {
    return map_->prepare(keys, progress, cancelled);
  }
  const KernelInfo& info(const Kernel& kernel) const override { return kernel.info; }
  KernelCounts counts() const override { return map_->counts(); }
  CacheCounts cache_counts() const override;
  std::vector<std::string> notes() const override;
  Result<void> launch(const Kernel& kernel, std::span<const std::uint64_t> arguments,
                      CUstream_st* stream) override;

  // By which routes kernels that are there were made: "nvrtc 12 kernels".
  Result<std::string> routes_of(std::span<const KernelKey> keys);

  const Context& context() const { return context_; }
  const Driver& driver() const { return context_.driver(); }
  const Toolchain& toolchain() const { return *toolchain_; }
  const DiskCache* cache() const { return cache_ ? &*cache_ : nullptr; }
  const ModuleMap& kernels() const { return *map_; }
  const Log& log() const { return trace_->log(); }

 private:
  explicit DeviceImpl(Context context) : context_(std::move(context)) {}

  // In order of use: each needs those above it.
  Context context_;
  std::vector<std::string> notes_;
  std::unique_ptr<Toolchain> toolchain_;
  std::optional<KernelTrace> trace_;
  std::optional<DiskCache> cache_;
  std::optional<ModuleMap> map_;
};

// Launches with parameters that are already in place. The hot path: no checks but the driver's.
inline CUresult launch_kernel(const Driver& driver, const Kernel& kernel, void** parameters,
                              CUstream stream) {
  const Geometry& geometry = kernel.info.geometry;
  return driver.cuLaunchKernel(kernel.function, geometry.grid_x, geometry.grid_y, 1,
                               geometry.threads, 1, 1, geometry.shared_bytes, stream, parameters,
                               nullptr);
}

// The device that a session's options name, or one of the session's own.
Result<std::shared_ptr<DeviceImpl>> device_for(const SessionOptions& options,
                                               const Platform& platform);

}  // namespace lathe
