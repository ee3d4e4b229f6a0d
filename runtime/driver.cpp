// Owns the loading of libcuda and the wording of its failures.
#include "runtime/driver.h"

#include <fmt/format.h>

#include <array>

#include "codegen/dynamic_library.h"

namespace lathe {
namespace {

// The oldest interface that has all functions of the table (CUlibrary came with 12.0). Asking for
// it, not for the newest, keeps the signatures those of the oldest <cuda.h> we compile against.
constexpr int kInterface = 12000;

Error no_driver(std::string message, std::string hint) {
  return Error{Code::no_driver, std::move(message), {}}.with("hint", std::move(hint));
}

Error unusable(CUresult status) {
  switch (status) {
    case CUDA_ERROR_STUB_LIBRARY:
      return no_driver("The libcuda.so.1 that was found is the CUDA toolkit's stub, not a driver.",
                       "remove the toolkit's stubs folder from LD_LIBRARY_PATH");
    case CUDA_ERROR_NO_DEVICE:
      return no_driver("The NVIDIA driver finds no GPU that this process may use.",
                       "check CUDA_VISIBLE_DEVICES, and that the container was given a GPU");
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      return no_driver("libcuda.so.1 and the NVIDIA kernel module are of different versions.",
                       "restart the machine, or reload the nvidia kernel module");
    default:
      return no_driver(
          fmt::format("The NVIDIA driver does not start: cuInit returned {}.", int(status)),
          "nvidia-smi tells more about the state of the driver");
  }
}

// After these every call in the context fails, until the last user of the context has let go of it.
bool loses_context(CUresult status) {
  switch (status) {
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
      return true;
    default:
      return false;
  }
}

}  // namespace

Result<Driver> load_driver(const std::string& library_name) {
  const std::array<std::string, 1> names = {library_name};
  auto library = DynamicLibrary::open(names);
  if (!library) {
    return no_driver(fmt::format("No NVIDIA driver: {}", library.error().message),
                     "install the NVIDIA driver, or use the cpu executor");
  }
  decltype(&::cuInit) init = nullptr;
  decltype(&::cuDriverGetVersion) get_version = nullptr;
  decltype(&::cuGetProcAddress) get_address = nullptr;
  if (!library->bind(init, "cuInit") || !library->bind(get_version, "cuDriverGetVersion")) {
    return no_driver(fmt::format("{} is not a CUDA driver: it has no cuInit.", library_name), "");
  }
  if (CUresult status = init(0); status != CUDA_SUCCESS) return unusable(status);
  int version = 0;
  if (CUresult status = get_version(&version); status != CUDA_SUCCESS) return unusable(status);
  if (version < kInterface || !library->bind(get_address, "cuGetProcAddress_v2")) {
    return no_driver(
        fmt::format("The NVIDIA driver is too old: it supports CUDA {}, Lathe needs {}.",
                    driver_version_text(version), driver_version_text(kInterface)),
        "install an NVIDIA driver of series 525 or later");
  }

  Driver driver;
  const char* missing = nullptr;
#define LATHE_DRIVER_BIND(name)                                                                 \
  {                                                                                             \
    void* address = nullptr;                                                                    \
    if (get_address(#name, &address, kInterface, CU_GET_PROC_ADDRESS_LEGACY_STREAM, nullptr) != \
        CUDA_SUCCESS) {                                                                         \
      address = nullptr;                                                                        \
    }                                                                                           \
    if (!address) missing = #name;                                                              \
    driver.name = reinterpret_cast<decltype(driver.name)>(address);                             \
  }
  LATHE_DRIVER_FUNCTIONS(LATHE_DRIVER_BIND)
#undef LATHE_DRIVER_BIND
  static_cast<void>(library->bind(driver.cuGraphAddDependencies_v2, "cuGraphAddDependencies_v2"));
  if (missing) {
    return no_driver(fmt::format("The NVIDIA driver (CUDA {}) has no function {}.",
                                 driver_version_text(version), missing),
                     "install a newer NVIDIA driver");
  }
  // Unloading a driver that has started threads and mapped devices is not safe.
  library->leak();
  return driver;
}

Result<const Driver*> system_driver() {
  static const Result<Driver> loaded = load_driver("libcuda.so.1");
  if (!loaded) return loaded.error();
  return &loaded.value();
}

Error driver_error(const Driver& driver, CUresult status, const char* call) {
  const char* name = nullptr;
  const char* words = nullptr;
  if (driver.cuGetErrorName(status, &name) != CUDA_SUCCESS || !name) name = "unknown status";
  if (driver.cuGetErrorString(status, &words) != CUDA_SUCCESS || !words) words = "no description";
  const Code code = status == CUDA_ERROR_OUT_OF_MEMORY ? Code::out_of_memory : Code::driver;
  Error error{code, fmt::format("The driver call {} failed: {}.", call, words), {}, int(status)};
  error =
      std::move(error).with("call", call).with("status", fmt::format("{} ({})", name, int(status)));
  if (!loses_context(status)) return error;
  return std::move(error).with(
      "hint",
      "the GPU context is lost: close every session and device in it, then "
      "open them anew");
}

Result<void> check(const Driver& driver, CUresult status, const char* call) {
  if (status == CUDA_SUCCESS) return {};
  return driver_error(driver, status, call);
}

std::string driver_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Result<int> driver_version(const Driver& driver) {
  int version = 0;
  LATHE_DRIVER_CALL(driver, cuDriverGetVersion, &version);
  return version;
}

}  // namespace lathe
