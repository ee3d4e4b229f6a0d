// Owns devices: opening one with its hooks, and loading kernels in it. The comments of
// lathe/c/kernel.h hold.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "device.h"

namespace lathe::python {
namespace {

using namespace nb::literals;

std::vector<std::string> notes_of(const Device& device) {
  std::vector<std::string> notes;
  const auto info = value_of(device.info());
  for (int i = 0; i < info.note_count; ++i) {
    const char* note = nullptr;
    expect(api::result_of(lathe_device_get_note(device.get(), i, &note)));
    notes.emplace_back(note);
  }
  return notes;
}

api::Kernel load_custom(const Device& device, const std::string& name, const std::string& source,
                        const std::string& entry,
                        const std::vector<std::pair<std::string, int>>& parameters,
                        const lathe_geometry& geometry, Language language) {
  std::vector<lathe_custom_parameter> wanted;
  for (const auto& [parameter, alignment] : parameters)
    wanted.push_back({parameter.c_str(), alignment, 0});
  auto custom = api::sized<lathe_custom_kernel>();
  custom.name = name.c_str();
  custom.source = source.c_str();
  custom.entry = entry.c_str();
  custom.language = number(language);
  custom.parameter_count = std::int32_t(wanted.size());
  custom.parameters = wanted.data();
  custom.geometry = geometry;
  return value_of(unlocked([&] { return device.load(custom); }));
}

void prepare(const Device& device, const std::vector<const api::Key*>& keys, nb::object progress) {
  std::vector<const lathe_key*> handles;
  for (const api::Key* key : keys) handles.push_back(key->get());
  Callback callback(std::move(progress));
  const auto done = unlocked([&] {
    return api::result_of(lathe_device_prepare(
        device.get(), handles.data(), std::int32_t(handles.size()), tell_progress, &callback));
  });
  callback.rethrow();
  expect(done);
}

// An exception of a hook's has nowhere to go: it is told as those of destructors are.
template <typename Body>
void without_raising(const Body& body) {
  const nb::gil_scoped_acquire acquired;
  try {
    body();
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("a hook of lathe.Device");
  }
}

void tell_log(void* user, std::int32_t level, const char* line) {
  without_raising([&] { static_cast<DeviceHooks*>(user)->log(level, line); });
}

std::uint64_t allocate(void* user, std::size_t bytes) {
  std::uint64_t address = 0;
  without_raising([&] {
    const nb::object given = static_cast<DeviceHooks*>(user)->allocate(bytes);
    if (!nb::try_cast(given, address))
      PyErr_SetString(PyExc_TypeError, "The allocator must return an address."),
          throw nb::python_error();
  });
  return address;
}

void free(void* user, std::uint64_t address) {
  without_raising([&] { static_cast<DeviceHooks*>(user)->free(address); });
}

void open_device(Device* self, int ordinal, std::uintptr_t context,
                 const std::vector<Route>& routes, bool disk_cache,
                 const std::optional<std::string>& cache_directory, bool cache_read_only,
                 std::int64_t cache_cap_bytes, const std::optional<std::string>& dump_directory,
                 const std::optional<std::string>& nvrtc, const std::optional<std::string>& llvm,
                 nb::object log, nb::object allocator, nb::object deallocator) {
  auto hooks = std::make_unique<DeviceHooks>(
      DeviceHooks{std::move(log), std::move(allocator), std::move(deallocator)});
  auto memory = api::sized<lathe_memory_hooks>();
  memory.user = hooks.get();
  if (!hooks->allocate.is_none()) memory.allocate_device = allocate;
  if (!hooks->free.is_none()) memory.free_device = free;
  std::vector<std::int32_t> numbers;
  for (const Route route : routes) numbers.push_back(number(route));
  auto options = api::sized<lathe_device_options>();
  options.device = ordinal;
  options.context = reinterpret_cast<CUctx_st*>(context);
  options.routes = numbers.data();
  options.route_count = std::int32_t(numbers.size());
  options.no_disk_cache = !disk_cache;
  options.cache_directory = or_null(cache_directory);
  options.cache_read_only = cache_read_only;
  options.cache_cap_bytes = cache_cap_bytes;
  options.dump_directory = or_null(dump_directory);
  options.nvrtc = or_null(nvrtc);
  options.llvm = or_null(llvm);
  options.memory = &memory;
  if (!hooks->log.is_none()) options.log = tell_log;
  options.log_user = hooks.get();
  auto opened = unlocked([&] { return api::Device::open(options); });
  new (self) Device(std::move(hooks), value_of(std::move(opened)));
}

// Entries of the disk cache that a device read, and what became of others.
struct CacheCounts {
  std::int64_t hits, misses, rejects, writes, write_failures, evictions;
};

CacheCounts cache_counts(const Device& device) {
  const lathe_device_info info = value_of(device.info());
  return {info.cache_hits,   info.cache_misses,         info.cache_rejects,
          info.cache_writes, info.cache_write_failures, info.cache_evictions};
}

}  // namespace

void bind_devices(nb::module_& module) {
  nb::class_<CacheCounts>(module, "CacheCounts",
                          "Entries of the disk cache since a device was opened.")
      .def_ro("hits", &CacheCounts::hits, "A warm kernel reads two.")
      .def_ro("misses", &CacheCounts::misses)
      .def_ro("rejects", &CacheCounts::rejects, "Damaged, unreadable or not the user's alone.")
      .def_ro("writes", &CacheCounts::writes)
      .def_ro("write_failures", &CacheCounts::write_failures)
      .def_ro("evictions", &CacheCounts::evictions);
  using Info = lathe_device_info;
  nb::class_<Device>(module, "Device", "A GPU context as a place for kernels.")
      .def(
          "__init__", &open_device, "ordinal"_a, "context"_a, "routes"_a, "disk_cache"_a,
          "cache_directory"_a.none(), "cache_read_only"_a, "cache_cap_bytes"_a,
          "dump_directory"_a.none(), "nvrtc"_a.none(), "llvm"_a.none(), "log"_a.none(),
          "allocate"_a.none(), "free"_a.none(),
          nb::sig("def __init__(self, ordinal: int, context: int, routes: "
                  "collections.abc.Sequence[Route], disk_cache: bool, cache_directory: str | None, "
                  "cache_read_only: bool, cache_cap_bytes: int, dump_directory: str | None, nvrtc: "
                  "str | None, llvm: str | None, log: collections.abc.Callable[[int, str], object] "
                  "| None, allocate: collections.abc.Callable[[int], int] | None, free: "
                  "collections.abc.Callable[[int], object] | None) -> None"))
      .def_prop_ro("description", info_member<&Info::description, Device>())
      .def_prop_ro("target", info_member<&Info::target, Device>())
      .def_prop_ro("assembler", info_member<&Info::assembler, Device>())
      .def_prop_ro("kernels_built", info_member<&Info::kernels_built, Device>())
      .def_prop_ro("kernels_from_disk", info_member<&Info::kernels_from_disk, Device>())
      .def_prop_ro("kernels_from_memory", info_member<&Info::kernels_from_memory, Device>(),
                   "Asked for again.")
      .def_prop_ro("cache", &cache_counts)
      .def_prop_ro("notes", &notes_of)
      .def("prepare", &prepare, "keys"_a, "progress"_a.none(),
           nb::sig("def prepare(self, keys: collections.abc.Sequence[Key], progress: "
                   "collections.abc.Callable[[str, int, int], object] | None) -> None"))
      .def(
          "load",
          [](const Device& self, const api::Key& key) {
            return value_of(unlocked([&] { return self.load(key); }));
          },
          nb::keep_alive<0, 1>(), "key"_a)
      .def("load_custom", &load_custom, nb::keep_alive<0, 1>(), "name"_a, "source"_a, "entry"_a,
           "parameters"_a, "geometry"_a, "language"_a);
}

}  // namespace lathe::python
