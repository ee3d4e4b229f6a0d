// Owns the loading of the runtime's own kernels, and the text of the one that ends a token.
#include "runtime/service_kernel.h"

#include <fmt/format.h>

#include <cstddef>
#include <optional>

#include "lathe/plan/plan.h"

namespace lathe {
namespace {

constexpr const char* kAdvance = R"(.version {version}
.target {target}
.address_size 64
.visible .entry lathe_advance(.param .u64 control, .param .u64 history) {{
  .reg .b32 %token, %position, %sampled, %slot;
  .reg .b64 %control, %history, %recent, %offset;
  ld.param.u64 %control, [control];
  ld.param.u64 %history, [history];
  ld.global.s32 %token, [%control+{token}];
  ld.global.s32 %position, [%control+{position}];
  ld.global.s32 %sampled, [%control+{sampled}];
  and.b32 %slot, %position, {last_slot};
  mul.wide.u32 %offset, %slot, 4;
  add.u64 %recent, %control, %offset;
  st.global.s32 [%recent+{recent}], %token;
  mul.wide.s32 %offset, %position, 4;
  add.u64 %history, %history, %offset;
  st.relaxed.sys.global.u32 [%history], %sampled;
  // -1, for logits that are all NaN, is no token: the host will see it in the history.
  max.s32 %sampled, %sampled, 0;
  add.s32 %position, %position, 1;
  st.global.s32 [%control+{token}], %sampled;
  st.global.s32 [%control+{position}], %position;
  ret;
}}
)";

Result<ServiceKernel> load(const DeviceImpl& device, const Cubin& cubin, const char* entry) {
  const Driver& driver = device.driver();
  CUlibrary library = nullptr;
  LATHE_DRIVER_CALL(driver, cuLibraryLoadData, &library, cubin.data(), nullptr, nullptr, 0, nullptr,
                    nullptr, 0);
  ServiceKernel loaded;
  loaded.library = DriverHandle<LibraryTraits>(device.context(), library);
  loaded.kernel.library = library;
  CUkernel kernel = nullptr;
  LATHE_DRIVER_CALL(driver, cuLibraryGetKernel, &kernel, library, entry);
  LATHE_DRIVER_CALL(driver, cuKernelGetFunction, &loaded.kernel.function, kernel);
  return loaded;
}

}  // namespace

Result<ServiceKernel> load_service_kernel(const DeviceImpl& device, const std::string& ptx,
                                          const char* entry) {
  const Assembler& assembler = device.toolchain().assembler();
  const DiskCache* cache = device.cache();
  const std::string key = cubin_key(ptx, device.target(), assembler);
  if (const auto known = cache ? cache->find(key) : std::nullopt) {
    if (auto loaded = load(device, *known, entry)) return loaded;
  }
  LATHE_ASSIGN(const Cubin cubin, assembler.assemble(ptx, device.target()));
  LATHE_ASSIGN(ServiceKernel loaded, load(device, cubin, entry));
  // The plan's kernels have reported it if the cache cannot be written.
  if (cache) static_cast<void>(cache->store(key, cubin));
  return loaded;
}

Result<ServiceKernel> load_program(const DeviceImpl& device, const Program& program) {
  const Toolchain& toolchain = device.toolchain();
  const Target& target = device.target();
  const DiskCache* cache = device.cache();
  LATHE_ASSIGN(const std::string compiler, toolchain.compiler(Route::nvrtc));
  const std::string key = fmt::format("lathe program 1\n{}\n{} ptx {}\n{}\n{}\n{}\n",
                                      program.text(), target.name(), target.ptx_version(), compiler,
                                      toolchain.fingerprint(), toolchain.assembler().name());
  const auto finish = [&](Result<ServiceKernel> loaded, bool from_cache) -> Result<ServiceKernel> {
    if (!loaded) return loaded;
    loaded->kernel.info.geometry = program.geometry();
    loaded->kernel.info.route = Route::nvrtc;
    loaded->kernel.info.compiler = compiler;
    loaded->kernel.info.from_cache = from_cache;
    CUkernel kernel = nullptr;
    LATHE_DRIVER_CALL(device.driver(), cuLibraryGetKernel, &kernel, loaded->kernel.library,
                      "lathe_persistent");
    const CUdevice ordinal = device.context().device();
    LATHE_DRIVER_CALL(device.driver(), cuKernelSetAttribute,
                      CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                      int(loaded->kernel.info.geometry.shared_bytes), kernel, ordinal);
    return loaded;
  };
  if (const auto known = cache ? cache->find(key) : std::nullopt) {
    if (auto loaded = finish(load(device, *known, "lathe_persistent"), true)) return loaded;
  }
  LATHE_ASSIGN(const Ptx ptx, toolchain.emit(program, target));
  LATHE_ASSIGN(const Cubin cubin, toolchain.assembler().assemble(ptx.text, target));
  LATHE_ASSIGN(ServiceKernel loaded, finish(load(device, cubin, "lathe_persistent"), false));
  if (cache) static_cast<void>(cache->store(key, cubin));
  return loaded;
}

Result<ServiceKernel> load_advance_kernel(const DeviceImpl& device) {
  const Target& target = device.target();
  constexpr std::size_t recent = offsetof(ControlBlock, sampling) + offsetof(SamplingState, recent);
  static_assert((kMaxRepeatLast & (kMaxRepeatLast - 1)) == 0, "%slot is a remainder by masking");
  const std::string ptx = fmt::format(
      kAdvance, fmt::arg("version", target.ptx_version()), fmt::arg("target", target.name()),
      fmt::arg("token", offsetof(ControlBlock, token)),
      fmt::arg("position", offsetof(ControlBlock, position)),
      fmt::arg("sampled", offsetof(ControlBlock, sampled)), fmt::arg("recent", recent),
      fmt::arg("last_slot", kMaxRepeatLast - 1));
  LATHE_ASSIGN(ServiceKernel advance, load_service_kernel(device, ptx, "lathe_advance"));
  advance.kernel.info.geometry = {.grid_x = 1, .grid_y = 1, .threads = 1, .shared_bytes = 0};
  return advance;
}

}  // namespace lathe
