// Owns the opening of a device and the checked launch of single kernels.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>

#include "runtime/device_impl.h"
#include "runtime/environment.h"

namespace lathe {
namespace {

// The LLVM route first: it needs no CUDA library and builds fastest. NVRTC makes the same code,
// slower. The text templates need nothing, but not every key has one, and they are not tuned.
constexpr std::array kDefaultRoutes = {Route::llvm, Route::nvrtc, Route::text};

constexpr std::size_t kMaxArguments = 32;

// The cache, or the reason to do without in `notes`.
std::optional<DiskCache> open_cache(const DeviceOptions& options, std::vector<std::string>& notes) {
  const Environment environment = read_environment();
  if (!options.disk_cache || environment.cache_off) return std::nullopt;
  const std::string& directory =
      options.cache_directory.empty() ? environment.cache_directory : options.cache_directory;
  if (directory.empty()) {
    notes.push_back("disk cache: off, as neither LATHE_CACHE_DIR nor HOME is set");
    return std::nullopt;
  }
  auto cache = DiskCache::open(directory);
  if (cache) return std::move(cache).value();
  notes.push_back("disk cache: off. " + cache.error().message + " See LATHE_CACHE_DIR.");
  return std::nullopt;
}

}  // namespace

std::span<const Route> default_routes() {
  return kDefaultRoutes;
}

Result<std::shared_ptr<DeviceImpl>> DeviceImpl::open(const DeviceOptions& options,
                                                     const Platform& platform) {
  const Driver* driver = platform.driver;
  if (!driver) {
    LATHE_ASSIGN(driver, system_driver());
  }
  LATHE_ASSIGN(Context context, Context::open(*driver, options.context, options.device));
  std::shared_ptr<DeviceImpl> device(new DeviceImpl(std::move(context)));
  if (platform.toolchain) {
    device->toolchain_ = platform.toolchain();
  } else {
    LATHE_ASSIGN(device->toolchain_,
                 open_toolchain(device->context_, options.compilers, device->notes_));
  }
  device->cache_ = open_cache(options, device->notes_);
  std::vector<Route> routes = options.routes;
  if (routes.empty()) routes.assign(kDefaultRoutes.begin(), kDefaultRoutes.end());
  device->map_.emplace(device->context_, *device->toolchain_, device->cache(), std::move(routes));
  return device;
}

Result<std::shared_ptr<Device>> Device::open(const DeviceOptions& options) {
  try {
    LATHE_ASSIGN(std::shared_ptr<Device> device, DeviceImpl::open(options, Platform{}));
    return device;
  } catch (const std::bad_alloc&) {
    return Error{Code::out_of_memory, "There is no host memory to open the device.", {}};
  }
}

std::string DeviceImpl::description() const {
  return fmt::format("{}, {}, driver {}", context_.device_name(), context_.target().name(),
                     driver_version_text(context_.driver_version()));
}

std::vector<std::string> DeviceImpl::notes() const {
  std::vector<std::string> notes = notes_;
  for (std::string& note : map_->notes()) notes.push_back(std::move(note));
  return notes;
}

Result<void> DeviceImpl::launch(const Kernel& kernel, std::span<const std::uint64_t> arguments,
                                CUstream_st* stream) {
  const std::vector<Param>& params = kernel.params;
  if (arguments.size() != params.size() || params.size() > kMaxArguments) {
    return Error{Code::invalid_argument,
                 fmt::format("{} takes {} arguments, not {}.", kernel.info.name, params.size(),
                             arguments.size()),
                 {}};
  }
  std::uint64_t values[kMaxArguments];
  void* pointers[kMaxArguments];
  for (std::size_t i = 0; i < params.size(); ++i) {
    const bool pointer = params[i].alignment > 0;  // and no value
    if (pointer && (arguments[i] == 0 || arguments[i] % std::uint64_t(params[i].alignment) != 0)) {
      return Error{Code::invalid_argument,
                   fmt::format("Argument {} of {} is {}.", params[i].name, kernel.info.name,
                               arguments[i] == 0
                                   ? "null"
                                   : fmt::format("not aligned to {} bytes", params[i].alignment)),
                   {}};
    }
    values[i] = arguments[i];
    pointers[i] = &values[i];
  }
  LATHE_ASSIGN(ContextScope scope, context_.enter());
  return check(driver(), launch_kernel(driver(), kernel, pointers, stream), "cuLaunchKernel");
}

}  // namespace lathe
