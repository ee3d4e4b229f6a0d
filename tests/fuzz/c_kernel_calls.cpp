// Owns the fuzzer's calls about keys, compilers, PTX, devices and kernels.
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "runtime/c_api/objects.h"
#include "runtime/device_impl.h"
#include "tests/fuzz/c_caller.h"

namespace lathe::fuzz {
namespace {

constexpr const char* kKeys[] = {"gemv.q8_0.k64.n8.w4", "rms_norm.f32.k64.n1.w1.eps1e-5",
                                 "gemv.q4_k.k256.n4.w2", "argmax.f32.n80"};

const char* some_key(Caller& c) {
  return c.text(kKeys[c.one_of(std::size(kKeys))]);
}

std::uint64_t allocate(void* user, std::size_t bytes) {
  auto& memory = *static_cast<Caller::Memory*>(user);
  if (memory.left-- <= 0 || bytes > (std::size_t{1} << 26)) return 0;
  void* made = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (!made) return 0;
  memory.driver->lend(reinterpret_cast<std::uintptr_t>(made), bytes, false);
  return reinterpret_cast<std::uintptr_t>(made);
}
void take_back(void* user, std::uint64_t address) {
  // While a batch decodes, products may take and give back memory of theirs.
  const bool others_work = true;
  static_cast<Caller::Memory*>(user)->driver->take_back(address, others_work);
  std::free(reinterpret_cast<void*>(address));
}

// On the fake driver, which the C functions do not know of.
void open_on_fake(Caller& c, const lathe_device_options& options) {
  const Result<DeviceOptions> wanted = c_api::device_options_of(options);
  require_clear(wanted);
  if (!wanted) return;
  const auto device = DeviceImpl::open(*wanted, c.driver().platform());
  require_clear(device);
  if (device) c.keep(c_api::open_device_handle(*device).value());
}

void open_device(Caller& c) {
  auto options = api::sized<lathe_device_options>();
  options.device = c.one_of(4) ? 0 : c.number(-1, 2);
  std::array<std::int32_t, 4> routes;
  for (std::int32_t& route : routes) route = c.number(-1, 4);
  options.routes = c.one_of(8) ? routes.data() : nullptr;
  options.route_count = c.one_of(2) ? 0 : c.input.ConsumeIntegralInRange(-1, int(routes.size()));
  options.no_disk_cache = c.one_of(8) ? 1 : 0;
  options.cache_directory = scratch_folder().c_str();
  options.cache_read_only = c.one_of(2);
  options.cache_cap_bytes = c.number(-1, 1 << 20);
  if (c.rarely()) options.dump_directory = scratch_folder().c_str();
  options.log = [](void*, std::int32_t level, const char* line) {
    require(line && *line && (level == LATHE_LOG_WARNING || level == LATHE_LOG_INFO));
  };
  auto hooks = api::sized<lathe_memory_hooks>();
  options.memory = &hooks;
  if (c.rarely()) {
    // The system's driver: there is none where fuzzers run.
    c.resize(hooks);
    c.resize(options);
    lathe_device* device = nullptr;
    const lathe_status status = lathe_device_open(&options, &device);
    Caller::seen(status);
    if (status == LATHE_OK) Caller::seen(lathe_device_close(device));
    return;
  }
  if (c.one_of(4) == 0) {
    hooks.user = c.memory(c.one_of(32));
    hooks.allocate_device = allocate;
    if (c.one_of(8)) hooks.free_device = take_back;  // else there is nobody to take it back
    c.resize(hooks);
  }
  open_on_fake(c, options);
}

void load_custom(Caller& c) {
  // What the fake tool chain's custom kernels take.
  std::array<lathe_custom_parameter, 3> parameters = {
      lathe_custom_parameter{"to", 4, 0}, {"value", 0, 0}, {"count", 0, 0}};
  auto custom = api::sized<lathe_custom_kernel>();
  custom.name = "fill";
  custom.source = c.one_of(4) ? "source" : "other source";
  custom.entry = "entry";
  custom.language = c.number(-1, 2);
  custom.parameter_count = 3;
  custom.parameters = parameters.data();
  custom.geometry = {1, 1, 32, 0};
  if (c.one_of(2) == 0) {
    // One that is never launched.
    custom.name = c.text("other");
    custom.source = c.text("source");
    custom.entry = c.text("entry");
    custom.geometry = {c.input.ConsumeIntegral<std::uint32_t>(), 1, std::uint32_t(c.number(0, 64)),
                       std::uint32_t(c.number(0, 1024))};
    custom.parameter_count = c.input.ConsumeIntegralInRange(-1, 3);
    for (lathe_custom_parameter& parameter : parameters) {
      parameter.name = c.text("p");
      parameter.alignment = c.number(-1, 16);
    }
    if (custom.name && std::string_view(custom.name) == "fill") return;
  }
  c.resize(custom);
  c.open<lathe_kernel>([&](lathe_kernel** out) {
    return lathe_kernel_load_custom(c.any<lathe_device>(), c.rarely() ? nullptr : &custom, out);
  });
}

// Addresses for a kernel that may be launched whatever is there; none for others.
std::vector<std::uint64_t> arguments_of(Caller& c, std::string_view name) {
  if (name == "fill") return {c.device_memory(), 7, std::uint64_t(c.one_of(64))};
  const auto key = api::Key::parse(name);
  if (!key || !(name.starts_with("gemv.") || name.starts_with("rms_norm."))) return {};
  std::vector<std::uint64_t> arguments;
  std::int64_t used = 0;
  for (int i = 0; i < key->info()->parameter_count; ++i) {
    const std::int64_t bytes = (key->parameter(i)->bytes + 255) / 256 * 256;
    if (bytes > Caller::kDeviceBytes - used) return {};
    arguments.push_back(c.device_memory() + std::uint64_t(used));
    used += bytes;
  }
  return arguments;
}

void launch(Caller& c) {
  lathe_kernel* kernel = c.any<lathe_kernel>();
  auto info = api::sized<lathe_kernel_info>();
  const lathe_status known = lathe_kernel_get_info(kernel, &info);
  Caller::seen(known);
  std::vector<std::uint64_t> arguments;
  if (known == LATHE_OK) arguments = arguments_of(c, info.name);
  auto count = std::int32_t(arguments.size());
  if (arguments.empty() || c.one_of(4) == 0) {
    // Refused by their count or as null pointers; a kernel of the program's own may have neither.
    const bool own = known == LATHE_OK && !api::Key::parse(info.name);
    arguments.assign(8, 0);
    count = own ? -1 : c.input.ConsumeIntegralInRange(-1, 8);
  }
  const CUstream stream = c.one_of(2) ? c.stream() : nullptr;
  Caller::seen(lathe_kernel_launch(kernel, c.rarely() ? nullptr : arguments.data(), count, stream));
  c.wait_for(stream);
}

void prepare(Caller& c) {
  std::array<const lathe_key*, 3> keys;
  for (const lathe_key*& key : keys) key = c.any<lathe_key>();
  const lathe_progress told = [](void*, const char* what, std::int64_t done, std::int64_t total) {
    require(what && done >= 0 && done <= total);
  };
  Caller::seen(lathe_device_prepare(c.any<lathe_device>(), c.rarely() ? nullptr : keys.data(),
                                    c.input.ConsumeIntegralInRange(-1, 3),
                                    c.one_of(2) ? told : nullptr, nullptr));
}

}  // namespace

void open_usual_device(Caller& c) {
  auto options = api::sized<lathe_device_options>();
  options.no_disk_cache = 1;
  open_on_fake(c, options);
}

void call_kernels(Caller& c) {
  switch (c.one_of(8)) {
    case 0:
    case 1:
      return c.open<lathe_key>([&](lathe_key** out) { return lathe_key_parse(some_key(c), out); });
    case 2:
      return c.fill<lathe_key_info>(
          [&](auto* info) { return lathe_key_get_info(c.any<lathe_key>(), info); });
    case 3:
      return c.fill<lathe_parameter>([&](auto* to) {
        return lathe_key_get_parameter(c.any<lathe_key>(), c.number(-2, 8), to);
      });
    case 4: {
      auto options = api::sized<lathe_compiler_options>();
      options.nvrtc = options.llvm = "/nowhere/lib.so";
      return c.open<lathe_compilers>(
          [&](auto** out) { return lathe_compilers_open(c.rarely() ? nullptr : &options, out); });
    }
    case 5:
      return c.open<lathe_ptx>([&](lathe_ptx** out) {
        return lathe_ptx_emit(c.any<lathe_compilers>(), c.any<lathe_key>(), c.text("sm_90a"),
                              c.number(-1, 4), out);
      });
    case 6:
      return c.fill<lathe_ptx_info>(
          [&](auto* info) { return lathe_ptx_get_info(c.any<lathe_ptx>(), info); });
    default: {
      const char* version = nullptr;
      return Caller::seen(
          lathe_compilers_get_version(c.any<lathe_compilers>(), c.number(-1, 4), c.place(version)));
    }
  }
}

void call_devices(Caller& c) {
  switch (c.one_of(8)) {
    case 0:
      return open_device(c);
    case 1:
      return c.fill<lathe_device_info>(
          [&](auto* info) { return lathe_device_get_info(c.any<lathe_device>(), info); });
    case 2: {
      const char* note = nullptr;
      return Caller::seen(
          lathe_device_get_note(c.any<lathe_device>(), c.number(-1, 3), c.place(note)));
    }
    case 3:
      return prepare(c);
    case 4:
      return c.open<lathe_kernel>([&](lathe_kernel** out) {
        return lathe_kernel_load(c.any<lathe_device>(), c.any<lathe_key>(), out);
      });
    case 5:
      return load_custom(c);
    case 6:
      return c.fill<lathe_kernel_info>(
          [&](auto* info) { return lathe_kernel_get_info(c.any<lathe_kernel>(), info); });
    default:
      return launch(c);
  }
}

}  // namespace lathe::fuzz
