// Owns the opening of a device and the checked launch of single kernels.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <new>

#include "lathe/runtime/session.h"
#include "runtime/device_impl.h"
#include "runtime/environment.h"

namespace lathe {
namespace {

// The LLVM route first: it needs no CUDA library and builds fastest. NVRTC makes the same code,
// slower. The text templates need nothing, but not every key has one, and they are not tuned.
constexpr std::array kDefaultRoutes = {Route::llvm, Route::nvrtc, Route::text};

constexpr std::size_t kMaxArguments = 32;

// The cache, or the reason to do without in `notes`.
std::optional<DiskCache> open_cache(const DeviceOptions& options, const Environment& environment,
                                    const Log& log, std::vector<std::string>& notes) {
  if (!options.disk_cache || environment.cache_mode == CacheMode::off) return std::nullopt;
  if (options.cache_directory.empty() && environment.cache_nowhere) return std::nullopt;
  const std::string& directory =
      options.cache_directory.empty() ? environment.cache_directory : options.cache_directory;
  DiskCacheOptions wanted;
  wanted.read_only = options.cache_read_only || environment.cache_mode == CacheMode::read_only;
  for (const std::int64_t cap : {environment.cache_cap, options.cache_cap_bytes}) {
    if (cap > 0) wanted.cap_bytes = cap;
  }
  wanted.log = log;
  std::string reason = "neither LATHE_CACHE_DIR nor HOME is set";
  if (!directory.empty()) {
    auto cache = DiskCache::open(directory, wanted);
    if (cache) return std::move(cache).value();
    reason = cache.error().message + " See LATHE_CACHE_DIR.";
  }
  if (log) log.write(LogLevel::warning, LogLine("cache", "off").field("why", reason));
  notes.push_back("disk cache: off. " + reason);
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
  LATHE_TRY(context.take_memory_from(options.memory));
  std::shared_ptr<DeviceImpl> device(new DeviceImpl(std::move(context)));
  if (platform.toolchain) {
    device->toolchain_ = platform.toolchain();
  } else {
    LATHE_ASSIGN(device->toolchain_,
                 open_toolchain(device->context_, options.compilers, device->notes_));
  }
  const Environment environment = read_environment();
  for (const std::string& problem : environment.problems) device->notes_.push_back(problem);
  const Log log = Log::open(options.log, environment.log, device->notes_);
  device->trace_.emplace(
      log, options.dump_directory.empty() ? environment.dump : options.dump_directory);
  device->cache_ = open_cache(options, environment, log, device->notes_);
  std::vector<Route> routes = options.routes;
  if (routes.empty()) routes.assign(kDefaultRoutes.begin(), kDefaultRoutes.end());
  device->map_.emplace(device->context_, *device->toolchain_, device->cache(), std::move(routes),
                       &*device->trace_);
  if (log) {
    LogLine line("device", "opened");
    line.field("device", device->description()).field("assembler", device->assembler());
    line.field("cache", device->cache_ ? device->cache_->directory().path() : "off");
    log.write(LogLevel::info, line);
  }
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

CacheCounts DeviceImpl::cache_counts() const {
  return cache_ ? cache_->counts() : CacheCounts{};
}

std::string DeviceImpl::description() const {
  return fmt::format("{}, {}, driver {}", context_.device_name(), context_.target().name(),
                     driver_version_text(context_.driver_version()));
}

std::vector<std::string> DeviceImpl::notes() const {
  std::vector<std::string> notes = notes_;
  for (std::string& note : map_->notes()) notes.push_back(std::move(note));
  if (const std::string trouble = trace_->trouble(); !trouble.empty()) {
    notes.push_back("dump: " + trouble);
  }
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

Result<std::string> DeviceImpl::routes_of(std::span<const KernelKey> keys) {
  std::map<Route, int> per_route;
  for (const KernelKey& key : keys) {
    LATHE_ASSIGN(const Kernel* found, kernel(key));
    ++per_route[found->info.route];
  }
  std::string out;
  for (const auto& [route, count] : per_route)
    out += fmt::format("{}{} {} kernel{}", out.empty() ? "" : ", ", route_name(route), count,
                       count == 1 ? "" : "s");
  return out;
}

DeviceOptions device_options(const SessionOptions& options) {
  DeviceOptions wanted;
  wanted.device = options.device;
  wanted.context = options.context;
  wanted.routes = options.routes;
  wanted.compilers = options.compilers;
  wanted.disk_cache = options.disk_cache;
  wanted.cache_directory = options.cache_directory;
  wanted.cache_read_only = options.cache_read_only;
  wanted.cache_cap_bytes = options.cache_cap_bytes;
  wanted.log = options.log;
  wanted.dump_directory = options.dump_directory;
  return wanted;
}

Result<std::shared_ptr<DeviceImpl>> device_for(const SessionOptions& options,
                                               const Platform& platform) {
  if (options.kernels) {
    if (auto device = std::dynamic_pointer_cast<DeviceImpl>(options.kernels)) return device;
    return Error{Code::invalid_argument, "SessionOptions::kernels is no device of Lathe's.", {}};
  }
  return DeviceImpl::open(device_options(options), platform);
}

}  // namespace lathe
