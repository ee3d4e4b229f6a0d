// Owns the loading of the runtime's own kernels, and the text of the one that ends a token.
#include "runtime/service_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>

#include "codegen/stopwatch.h"
#include "lathe/plan/plan.h"
#include "runtime/cache_entry.h"
#include "runtime/cached_kernel.h"

namespace lathe {
namespace {

constexpr const char* kAdvance = R"(.version {version}
.target {target}
.address_size 64
.visible .entry lathe_advance(.param .u64 control, .param .u64 history, .param .u64 last) {{
  .reg .b32 %token, %position, %sampled, %slot, %last;
  .reg .b64 %control, %history, %recent, %offset, %wide;
  {wait}
  ld.param.u64 %control, [control];
  ld.param.u64 %history, [history];
  ld.param.u64 %wide, [last];
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
  cvt.u32.u64 %last, %wide;
  min.s32 %position, %position, %last;
  st.global.s32 [%control+{token}], %sampled;
  st.global.s32 [%control+{position}], %position;
  ret;
}}
)";

constexpr const char* kWait = "griddepcontrol.wait;";
constexpr const char* kPersistent = "lathe_persistent";

Result<ServiceKernel> load(const DeviceImpl& device, const Cubin& cubin, const char* entry,
                           const KernelInfo& info) {
  const Stopwatch loading;
  const Driver& driver = device.driver();
  CUlibrary library = nullptr;
  LATHE_DRIVER_CALL(driver, cuLibraryLoadData, &library, cubin.data(), nullptr, nullptr, 0, nullptr,
                    nullptr, 0);
  ServiceKernel loaded;
  loaded.library = DriverHandle<LibraryTraits>(device.context(), library);
  loaded.kernel.info = info;
  loaded.kernel.info.cubin_bytes = std::int64_t(cubin.size());
  loaded.kernel.library = library;
  CUkernel kernel = nullptr;
  LATHE_DRIVER_CALL(driver, cuLibraryGetKernel, &kernel, library, entry);
  LATHE_DRIVER_CALL(driver, cuKernelGetFunction, &loaded.kernel.function, kernel);
  LATHE_DRIVER_CALL(driver, cuKernelGetAttribute, &loaded.kernel.info.registers,
                    CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, device.context().device());
  LATHE_DRIVER_CALL(driver, cuKernelGetAttribute, &loaded.kernel.info.local_bytes,
                    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, kernel, device.context().device());
  loaded.kernel.info.load_ms = loading.milliseconds();
  device.kernels().tell(entry, loaded.kernel.info);
  return loaded;
}

}  // namespace

Result<ServiceKernel> load_service_kernel(const DeviceImpl& device, const std::string& ptx,
                                          const char* entry) {
  const DiskCache* cache = device.cache();
  const std::string key = cubin_key(ptx, device.target(), device.toolchain().assembler());
  KernelInfo info;
  info.route = Route::text;
  info.compiler = "PTX of the runtime";
  if (const auto known = cache ? cache->find(key) : std::nullopt) {
    info.from_cache = true;
    if (auto loaded = load(device, *known, entry, info)) return loaded;
    info.from_cache = false;
  }
  LATHE_ASSIGN(const Cubin cubin, device.kernels().assemble(entry, ptx, info));
  LATHE_ASSIGN(ServiceKernel loaded, load(device, cubin, entry, info));
  if (cache) keep_cubin(*cache, key, cubin);
  return loaded;
}

Result<ServiceKernel> load_program(const DeviceImpl& device, const Program& program) {
  if (std::ranges::count(device.kernels().routes(), Route::nvrtc) == 0)
    return Error{Code::not_eligible,
                 "no persistent kernel: NVRTC makes it, and is not among the routes wanted",
                 {}};
  const Toolchain& toolchain = device.toolchain();
  const Target& target = device.target();
  const DiskCache* cache = device.cache();
  KernelInfo info;
  info.route = Route::nvrtc;
  info.geometry = program.geometry();
  LATHE_ASSIGN(info.compiler, toolchain.compiler(Route::nvrtc));
  const std::string key = record_key(program.text(), target, Route::nvrtc, info.compiler,
                                     toolchain.fingerprint(), toolchain.assembler());
  const auto finish = [&](Result<ServiceKernel> loaded) -> Result<ServiceKernel> {
    if (!loaded) return loaded;
    CUkernel kernel = nullptr;
    LATHE_DRIVER_CALL(device.driver(), cuLibraryGetKernel, &kernel, loaded->kernel.library,
                      kPersistent);
    const CUdevice ordinal = device.context().device();
    LATHE_DRIVER_CALL(device.driver(), cuKernelSetAttribute,
                      CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                      int(info.geometry.shared_bytes), kernel, ordinal);
    return loaded;
  };
  if (const auto known = cache ? find_kernel(*cache, key) : std::nullopt) {
    info.from_cache = true;
    if (auto loaded = finish(load(device, known->cubin, kPersistent, info))) return loaded;
    info.from_cache = false;
  }
  LATHE_ASSIGN(const Ptx ptx, toolchain.emit(program, target));
  info.emit_ms = ptx.milliseconds;
  LATHE_ASSIGN(const Cubin cubin, device.kernels().assemble(kPersistent, ptx.text, info));
  LATHE_ASSIGN(ServiceKernel loaded, finish(load(device, cubin, kPersistent, info)));
  const std::string content_key = cubin_key(ptx.text, target, toolchain.assembler());
  if (cache && keep_cubin(*cache, content_key, cubin)) {
    keep_record(*cache, key, {cache_digest(content_key), kPersistent, info.geometry});
  }
  return loaded;
}

Result<ServiceKernel> load_advance_kernel(const DeviceImpl& device) {
  const Target& target = device.target();
  const bool waits = target.compute >= kEarlyCompute && target.ptx >= 78;
  constexpr std::size_t recent = offsetof(ControlBlock, sampling) + offsetof(SamplingState, recent);
  static_assert((kMaxRepeatLast & (kMaxRepeatLast - 1)) == 0, "%slot is a remainder by masking");
  const std::string ptx = fmt::format(
      kAdvance, fmt::arg("version", target.ptx_version()), fmt::arg("target", target.name()),
      fmt::arg("token", offsetof(ControlBlock, token)),
      fmt::arg("position", offsetof(ControlBlock, position)),
      fmt::arg("sampled", offsetof(ControlBlock, sampled)), fmt::arg("recent", recent),
      fmt::arg("last_slot", kMaxRepeatLast - 1), fmt::arg("wait", waits ? kWait : ""));
  LATHE_ASSIGN(ServiceKernel advance, load_service_kernel(device, ptx, "lathe_advance"));
  advance.kernel.info.name = "lathe_advance";
  advance.kernel.waits = waits;
  advance.kernel.info.geometry = {.grid_x = 1, .grid_y = 1, .threads = 1, .shared_bytes = 0};
  return advance;
}

Result<void> EndOfToken::load(const DeviceImpl& device, CUdeviceptr control, CUdeviceptr history,
                              int positions) {
  LATHE_ASSIGN(kernel_, load_advance_kernel(device));
  const CUdeviceptr arguments[] = {control, history, CUdeviceptr(positions - 1)};
  for (std::size_t i = 0; i < std::size(arguments); ++i) {
    arguments_[i] = arguments[i];
    parameters_[i] = &arguments_[i];
  }
  return {};
}

}  // namespace lathe
