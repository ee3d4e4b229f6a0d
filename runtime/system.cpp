// Owns the examination of this machine.
#include "lathe/runtime/system.h"

#include <fmt/format.h>

#include <array>
#include <fstream>

#include "codegen/dynamic_library.h"
#include "runtime/assembler.h"
#include "runtime/disk_cache.h"
#include "runtime/environment.h"

namespace lathe {
namespace {

LibraryFound library(const char* name, const char* purpose, bool named,
                     const Result<std::string>& version, const Result<std::string>& path) {
  LibraryFound found{.name = name, .purpose = purpose, .named = named};
  if (version && path) {
    found.version = version.value();
    found.path = path.value();
  } else {
    found.problem = version ? path.error().message : version.error().message;
  }
  return found;
}

GpuFound gpu(const Driver& driver, int ordinal) {
  GpuFound found{.ordinal = ordinal};
  CUdevice device = 0;
  std::array<char, 256> name = {};
  std::size_t bytes = 0;
  int major = 0, minor = 0;
  const auto attribute = [&](int& out, CUdevice_attribute which) {
    return check(driver, driver.cuDeviceGetAttribute(&out, which, device), "cuDeviceGetAttribute");
  };
  const Result<void> asked = [&]() -> Result<void> {
    LATHE_DRIVER_CALL(driver, cuDeviceGet, &device, ordinal);
    LATHE_DRIVER_CALL(driver, cuDeviceGetName, name.data(), int(name.size()) - 1, device);
    LATHE_DRIVER_CALL(driver, cuDeviceTotalMem, &bytes, device);
    LATHE_TRY(attribute(found.multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    LATHE_TRY(attribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
    return attribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  }();
  found.name = name.data();
  found.memory_bytes = std::int64_t(bytes);
  const auto target = target_for_compute_capability(major, minor);
  if (target) found.target = target->name();
  if (!asked) {
    found.problem = Result<void>(asked).error().message;
  } else if (!target) {
    found.problem = target.error().message;
  }
  return found;
}

void examine_driver(SystemReport& report) {
  const auto driver = system_driver();
  Result<std::string> version = std::string();
  Result<std::string> path = std::string();
  if (!driver) {
    version = driver.error();
  } else {
    if (const auto number = driver_version(**driver)) {
      version = "CUDA " + driver_version_text(*number);
    } else {
      version = number.error();
    }
    const std::array<std::string, 1> names = {"libcuda.so.1"};
    if (const auto opened = DynamicLibrary::open(names)) path = opened->path();
    int count = 0;
    static_cast<void>((*driver)->cuDeviceGetCount(&count));
    for (int i = 0; i < count; ++i) report.gpus.push_back(gpu(**driver, i));
  }
  report.libraries.push_back(library("driver", "the GPU", false, version, path));
  std::ifstream file("/proc/driver/nvidia/version");
  std::getline(file, report.kernel_module);
}

void examine_compilers(const CompilerPaths& given, const Environment& environment,
                       SystemReport& report) {
  CompilerPaths paths = given;
  if (paths.nvrtc.empty()) paths.nvrtc = environment.nvrtc;
  if (paths.llvm.empty()) paths.llvm = environment.llvm;
  const Compilers compilers(paths);
  report.libraries.push_back(library("nvrtc", "the nvrtc route and the mega executor",
                                     !paths.nvrtc.empty(), compilers.version(Route::nvrtc),
                                     compilers.library(Route::nvrtc)));
  report.libraries.push_back(library("llvm", "the llvm route", !paths.llvm.empty(),
                                     compilers.version(Route::llvm),
                                     compilers.library(Route::llvm)));
  const std::string& linker = environment.nvjitlink;
  Result<std::string> version = Error{Code::not_found, "off: the driver assembles", {}};
  Result<std::string> path = std::string();
  if (linker != "off") {
    const auto opened = open_nvjitlink(linker);
    version = opened ? Result<std::string>((*opened)->name()) : opened.error();
    if (opened) path = (*opened)->library();
  }
  report.libraries.push_back(library("nvJitLink", "assembling; without it the driver does",
                                     !linker.empty() && linker != "off", version, path));
}

void examine_disk_cache(const Environment& environment, SystemReport& report) {
  report.cache = cache_settings();
  if (report.cache.off) {
    report.cache_problem = "off, as the environment says";
    return;
  }
  if (environment.cache_directory.empty()) {
    report.cache_problem = "off: neither LATHE_CACHE_DIR nor HOME is set";
    return;
  }
  auto state = examine_cache(environment.cache_directory);
  if (state) {
    report.cache_state = *state;
    return;
  }
  report.cache_problem = state.error().message;
  if (state.error().code == Code::not_found && !report.cache.read_only) {
    report.cache_problem = "not made yet";
    return;
  }
  report.problems.push_back("The disk cache is not used. " + state.error().message);
}

}  // namespace

SystemReport examine_system(const CompilerPaths& compilers) {
  const Environment environment = read_environment();
  SystemReport report;
  report.problems = environment.problems;
  examine_driver(report);
  examine_compilers(compilers, environment, report);
  examine_disk_cache(environment, report);
  for (const LibraryFound& found : report.libraries) {
    if (found.named && !found.problem.empty()) {
      report.problems.push_back(
          fmt::format("The library named for {} cannot be used: {}", found.name, found.problem));
    }
  }
  return report;
}

}  // namespace lathe
