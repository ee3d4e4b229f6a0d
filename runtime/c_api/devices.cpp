// Owns the C functions about devices and the kernels loaded in them.
#include "runtime/c_api/objects.h"
#include "runtime/module_map.h"

using namespace lathe;
using namespace lathe::c_api;

namespace {

// Of what a handle says or needs; both kinds of kernel end here.
Result<lathe_kernel*> open_kernel(const DeviceObject& device, const Kernel* kernel) {
  auto object = std::make_unique<KernelObject>();
  object->device = device.device;
  object->kernel = kernel;
  object->params = int(kernel->params.size());
  return open_handle(std::move(object));
}

Result<std::vector<Route>> routes_of(const std::int32_t* numbers, std::int32_t count) {
  std::vector<Route> routes;
  LATHE_TRY(check_array(numbers, "routes", count));
  for (std::int32_t i = 0; i < count; ++i) {
    LATHE_ASSIGN(const Route route, route_of(numbers[i]));
    routes.push_back(route);
  }
  return routes;
}

LogHook log_of(lathe_log log, void* user) {
  if (!log) return {};
  static_assert(LATHE_LOG_WARNING == static_cast<int>(LogLevel::warning) &&
                LATHE_LOG_INFO == static_cast<int>(LogLevel::info));
  return [=](LogLevel level, std::string_view line) {
    log(user, static_cast<std::int32_t>(level), std::string(line).c_str());
  };
}

Result<CustomKernel> custom_kernel_of(const lathe_custom_kernel& given) {
  if (!given.name) return null_argument("lathe_custom_kernel.name");
  if (!given.source) return null_argument("lathe_custom_kernel.source");
  if (!given.entry) return null_argument("lathe_custom_kernel.entry");
  if (given.language != LATHE_LANGUAGE_CUDA && given.language != LATHE_LANGUAGE_PTX)
    return unknown_number("language", given.language);
  LATHE_TRY(check_array(given.parameters, "lathe_custom_kernel.parameters", given.parameter_count));
  CustomKernel custom;
  custom.name = given.name;
  custom.language =
      given.language == LATHE_LANGUAGE_PTX ? SourceLanguage::ptx : SourceLanguage::cuda;
  custom.source = given.source;
  custom.entry = given.entry;
  custom.geometry = {given.geometry.grid_x, given.geometry.grid_y, given.geometry.threads,
                     given.geometry.shared_bytes};
  for (std::int32_t i = 0; i < given.parameter_count; ++i) {
    const lathe_custom_parameter& parameter = given.parameters[i];
    if (!parameter.name) return null_argument("lathe_custom_parameter.name");
    custom.params.push_back({parameter.name, parameter.alignment});
  }
  return custom;
}

}  // namespace

Result<DeviceOptions> lathe::c_api::device_options_of(const lathe_device_options& given) {
  DeviceOptions wanted;
  wanted.device = given.device;
  wanted.context = given.context;
  LATHE_ASSIGN(wanted.routes, routes_of(given.routes, given.route_count));
  wanted.compilers = {.nvrtc = text_or_empty(given.nvrtc), .llvm = text_or_empty(given.llvm)};
  wanted.disk_cache = !given.no_disk_cache;
  wanted.cache_directory = text_or_empty(given.cache_directory);
  LATHE_ASSIGN(const auto memory, read_optional_struct(given.memory, "lathe_memory_hooks"));
  wanted.memory = {memory.user, memory.allocate_device, memory.free_device, memory.allocate_pinned,
                   memory.free_pinned};
  wanted.log = log_of(given.log, given.log_user);
  wanted.dump_directory = text_or_empty(given.dump_directory);
  wanted.cache_read_only = given.cache_read_only != 0;
  if (given.cache_cap_bytes < 0) {
    return Error{Code::invalid_argument,
                 fmt::format("A cache of {} bytes makes no sense.", given.cache_cap_bytes),
                 {}};
  }
  wanted.cache_cap_bytes = given.cache_cap_bytes;
  return wanted;
}

lathe_status lathe_device_open(const lathe_device_options* options, lathe_device** device) {
  return guarded([&]() -> Result<void> {
    LATHE_NOT_NULL(device);
    LATHE_ASSIGN(const auto given, read_optional_struct(options, "lathe_device_options"));
    LATHE_ASSIGN(const DeviceOptions wanted, device_options_of(given));
    LATHE_ASSIGN(std::shared_ptr<Device> opened, Device::open(wanted));
    LATHE_ASSIGN(*device, open_device_handle(std::move(opened)));
    return {};
  });
}

lathe_status lathe_device_close(lathe_device* device) {
  return guarded([&] { return close<DeviceObject>(device); });
}

lathe_status lathe_device_get_info(lathe_device* device, lathe_device_info* info) {
  return guarded([&]() -> Result<void> {
    LATHE_ASSIGN(DeviceObject * object, find<DeviceObject>(device));
    const KernelCounts counts = object->device->counts();
    const CacheCounts cache = object->device->cache_counts();
    const GpuProfile& gpu = object->device->profile();
    const std::lock_guard lock(object->mutex);
    return write_struct({.struct_size = 0,
                         .description = object->description.c_str(),
                         .target = object->target.c_str(),
                         .assembler = object->assembler.c_str(),
                         .kernels_built = counts.built,
                         .kernels_from_disk = counts.from_disk,
                         .kernels_from_memory = counts.from_memory,
                         .note_count = std::int32_t(object->device->notes().size()),
                         .cache_hits = cache.hits,
                         .cache_misses = cache.misses,
                         .cache_rejects = cache.rejects,
                         .cache_writes = cache.writes,
                         .cache_write_failures = cache.write_failures,
                         .cache_evictions = cache.evictions,
                         .compute = gpu.compute,
                         .multiprocessors = gpu.multiprocessors,
                         .block_shared_bytes = gpu.block_shared_bytes,
                         .multiprocessor_shared_bytes = gpu.multiprocessor_shared_bytes,
                         .l2_bytes = gpu.cache_bytes},
                        info, "lathe_device_info");
  });
}

lathe_status lathe_device_get_note(lathe_device* device, std::int32_t index, const char** note) {
  return guarded([&]() -> Result<void> {
    LATHE_NOT_NULL(note);
    LATHE_ASSIGN(DeviceObject * object, find<DeviceObject>(device));
    const std::lock_guard lock(object->mutex);
    const std::vector<std::string> notes = object->device->notes();
    if (index < 0 || std::size_t(index) >= notes.size()) return unknown_number("note", index);
    for (std::size_t i = object->notes.size(); i < notes.size(); ++i)
      object->notes.push_back(notes[i]);
    *note = object->notes[std::size_t(index)].c_str();
    return {};
  });
}

lathe_status lathe_device_prepare(lathe_device* device, const lathe_key* const* keys,
                                  std::int32_t key_count, lathe_progress progress, void* user) {
  return guarded([&]() -> Result<void> {
    LATHE_ASSIGN(const DeviceObject* object, find<DeviceObject>(device));
    LATHE_TRY(check_array(keys, "keys", key_count));
    std::vector<KernelKey> wanted;
    for (std::int32_t i = 0; i < key_count; ++i) {
      LATHE_ASSIGN(const KeyObject* key, find<KeyObject>(keys[i]));
      wanted.push_back(key->key);
    }
    return object->device->prepare(wanted, progress_of(progress, user));
  });
}

lathe_status lathe_kernel_load(lathe_device* device, const lathe_key* key, lathe_kernel** kernel) {
  return guarded([&]() -> Result<void> {
    LATHE_NOT_NULL(kernel);
    LATHE_ASSIGN(const DeviceObject* object, find<DeviceObject>(device));
    LATHE_ASSIGN(const KeyObject* of, find<KeyObject>(key));
    LATHE_ASSIGN(const Kernel* loaded, object->device->kernel(of->key));
    LATHE_ASSIGN(*kernel, open_kernel(*object, loaded));
    return {};
  });
}

lathe_status lathe_kernel_load_custom(lathe_device* device, const lathe_custom_kernel* custom,
                                      lathe_kernel** kernel) {
  return guarded([&]() -> Result<void> {
    LATHE_NOT_NULL(kernel);
    LATHE_ASSIGN(const DeviceObject* object, find<DeviceObject>(device));
    LATHE_ASSIGN(const auto given, read_struct(custom, "lathe_custom_kernel"));
    LATHE_ASSIGN(const CustomKernel wanted, custom_kernel_of(given));
    LATHE_ASSIGN(const Kernel* loaded, object->device->kernel(wanted));
    LATHE_ASSIGN(*kernel, open_kernel(*object, loaded));
    return {};
  });
}

lathe_status lathe_kernel_close(lathe_kernel* kernel) {
  return guarded([&] { return close<KernelObject>(kernel); });
}

lathe_status lathe_kernel_get_info(const lathe_kernel* kernel, lathe_kernel_info* info) {
  return guarded([&]() -> Result<void> {
    LATHE_ASSIGN(const KernelObject* object, find<KernelObject>(kernel));
    const KernelInfo& known = object->device->info(*object->kernel);
    return write_struct({.struct_size = 0,
                         .name = known.name.c_str(),
                         .compiler = known.compiler.c_str(),
                         .geometry = geometry_of(known.geometry),
                         .parameter_count = object->params,
                         .route = number_of(known.route),
                         .from_cache = known.from_cache,
                         .registers = known.registers,
                         .local_bytes = known.local_bytes,
                         .shared_bytes = known.shared_bytes,
                         .cubin_bytes = known.cubin_bytes,
                         .emit_ms = known.emit_ms,
                         .assemble_ms = known.assemble_ms,
                         .load_ms = known.load_ms},
                        info, "lathe_kernel_info");
  });
}

lathe_status lathe_kernel_launch(const lathe_kernel* kernel, const std::uint64_t* arguments,
                                 std::int32_t argument_count, CUstream_st* stream) {
  return guarded([&]() -> Result<void> {
    LATHE_ASSIGN(const KernelObject* object, find<KernelObject>(kernel));
    LATHE_TRY(check_array(arguments, "arguments", argument_count));
    return object->device->launch(*object->kernel, {arguments, std::size_t(argument_count)},
                                  stream);
  });
}
