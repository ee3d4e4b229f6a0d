// Owns the driver calls of the GPU tests.
#include "tests/support/gpu.h"

#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <utility>

namespace lathe::testing {
namespace {

constexpr std::byte kMark{0xc3};
constexpr std::size_t kMargin = 512;

}  // namespace

struct Gpu::Driver {
  void* library = nullptr;
  CUcontext context = nullptr;
  CUresult (*init)(unsigned) = nullptr;
  CUresult (*error_string)(CUresult, const char**) = nullptr;
  CUresult (*device_count)(int*) = nullptr;
  CUresult (*device_attribute)(int*, CUdevice_attribute, CUdevice) = nullptr;
  CUresult (*retain)(CUcontext*, CUdevice) = nullptr;
  CUresult (*release)(CUdevice) = nullptr;
  CUresult (*set_current)(CUcontext) = nullptr;
  CUresult (*synchronize)() = nullptr;
  CUresult (*allocate)(CUdeviceptr*, std::size_t) = nullptr;
  CUresult (*free)(CUdeviceptr) = nullptr;
  CUresult (*to_device)(CUdeviceptr, const void*, std::size_t) = nullptr;
  CUresult (*to_host)(void*, CUdeviceptr, std::size_t) = nullptr;
  CUresult (*load)(CUmodule*, const void*, unsigned, CUjit_option*, void**) = nullptr;
  CUresult (*unload)(CUmodule) = nullptr;
  CUresult (*function)(CUfunction*, CUmodule, const char*) = nullptr;
  CUresult (*set_attribute)(CUfunction, CUfunction_attribute, int) = nullptr;
  CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     unsigned, CUstream, void**, void**) = nullptr;

  // False when a symbol is missing.
  bool bind() {
    bool all = true;
    const auto get = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      all = all && function;
    };
    get(init, "cuInit");
    get(error_string, "cuGetErrorString");
    get(device_count, "cuDeviceGetCount");
    get(device_attribute, "cuDeviceGetAttribute");
    get(retain, "cuDevicePrimaryCtxRetain");
    get(release, "cuDevicePrimaryCtxRelease_v2");
    get(set_current, "cuCtxSetCurrent");
    get(synchronize, "cuCtxSynchronize");
    get(allocate, "cuMemAlloc_v2");
    get(free, "cuMemFree_v2");
    get(to_device, "cuMemcpyHtoD_v2");
    get(to_host, "cuMemcpyDtoH_v2");
    get(load, "cuModuleLoadDataEx");
    get(unload, "cuModuleUnload");
    get(function, "cuModuleGetFunction");
    get(set_attribute, "cuFuncSetAttribute");
    get(launch, "cuLaunchKernel");
    return all;
  }
};

Gpu::~Gpu() {
  if (driver_ && driver_->context) driver_->release(0);
}

Result<Gpu*> Gpu::first() {
  static Gpu gpu;
  static const Result<void> opened = gpu.open();
  if (!opened) return opened.error();
  return &gpu;
}

Result<void> Gpu::checked(int status, const char* call) const {
  if (status == CUDA_SUCCESS) return {};
  const char* text = nullptr;
  driver_->error_string(static_cast<CUresult>(status), &text);
  return Error{Code::driver, std::string(call) + ": " + (text ? text : "?"), {}};
}

Result<void> Gpu::open() {
  driver_ = std::make_unique<Driver>();
  driver_->library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver_->library) return Error{Code::no_driver, "no libcuda.so.1 on this machine", {}};
  if (!driver_->bind()) return Error{Code::no_driver, "libcuda.so.1 lacks a function", {}};
  LATHE_TRY(checked(driver_->init(0), "cuInit"));
  int count = 0;
  LATHE_TRY(checked(driver_->device_count(&count), "cuDeviceGetCount"));
  if (count == 0) return Error{Code::no_driver, "no GPU on this machine", {}};
  int major = 0, minor = 0;
  driver_->device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
  driver_->device_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
  LATHE_ASSIGN(target_, target_for_compute_capability(major, minor));
  LATHE_TRY(checked(driver_->retain(&driver_->context, 0), "cuDevicePrimaryCtxRetain"));
  return checked(driver_->set_current(driver_->context), "cuCtxSetCurrent");
}

Result<std::uint64_t> Gpu::allocate(std::size_t bytes) {
  CUdeviceptr address = 0;
  LATHE_TRY(checked(driver_->allocate(&address, bytes), "cuMemAlloc"));
  return static_cast<std::uint64_t>(address);
}

void Gpu::free(std::uint64_t address) {
  driver_->free(address);
}

Result<void> Gpu::write(std::uint64_t to, std::span<const std::byte> from) {
  return checked(driver_->to_device(to, from.data(), from.size()), "cuMemcpyHtoD");
}

Result<void> Gpu::read(std::span<std::byte> to, std::uint64_t from) {
  return checked(driver_->to_host(to.data(), from, to.size()), "cuMemcpyDtoH");
}

Result<void> Gpu::run(const std::string& ptx, const std::string& entry, const Geometry& geometry,
                      std::span<const std::uint64_t> pointers) {
  std::array<char, 8192> log{};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
  CUmodule module = nullptr;
  if (Result<void> loaded =
          checked(driver_->load(&module, ptx.c_str(), 2, options, values), "cuModuleLoadDataEx");
      !loaded)
    return std::move(loaded).error().with("log", log.data());
  const auto run = [&]() -> Result<void> {
    CUfunction function = nullptr;
    LATHE_TRY(checked(driver_->function(&function, module, entry.c_str()), "cuModuleGetFunction"));
    LATHE_TRY(
        checked(driver_->set_attribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                       static_cast<int>(geometry.shared_bytes)),
                "cuFuncSetAttribute"));
    std::vector<void*> arguments;
    for (const std::uint64_t& pointer : pointers)
      arguments.push_back(const_cast<std::uint64_t*>(&pointer));
    LATHE_TRY(
        checked(driver_->launch(function, geometry.grid_x, geometry.grid_y, 1, geometry.threads, 1,
                                1, geometry.shared_bytes, nullptr, arguments.data(), nullptr),
                "cuLaunchKernel"));
    return checked(driver_->synchronize(), "cuCtxSynchronize");
  };
  Result<void> ran = run();
  driver_->unload(module);
  return ran;
}

Result<GpuBuffer> GpuBuffer::make(Gpu& gpu, std::span<const std::byte> contents,
                                  std::size_t alignment) {
  const std::size_t offset = kMargin + alignment;
  std::vector<std::byte> all(offset + contents.size() + kMargin, kMark);
  std::copy(contents.begin(), contents.end(), all.begin() + static_cast<std::ptrdiff_t>(offset));
  LATHE_ASSIGN(const std::uint64_t base, gpu.allocate(all.size()));
  GpuBuffer buffer(gpu, base, offset, contents.size());
  LATHE_TRY(gpu.write(base, all));
  return buffer;
}

GpuBuffer::GpuBuffer(GpuBuffer&& other) noexcept
    : gpu_(other.gpu_),
      base_(std::exchange(other.base_, 0)),
      offset_(other.offset_),
      size_(other.size_) {}

GpuBuffer::~GpuBuffer() {
  if (base_) gpu_->free(base_);
}

Result<std::vector<std::byte>> GpuBuffer::contents() const {
  std::vector<std::byte> all(offset_ + size_ + kMargin);
  LATHE_TRY(gpu_->read(all, base_));
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(offset_);
  const auto last = first + static_cast<std::ptrdiff_t>(size_);
  const auto marked = [](std::byte b) { return b == kMark; };
  if (!std::all_of(all.begin(), first, marked) || !std::all_of(last, all.end(), marked))
    return Error{Code::internal, "memory beside a buffer changed", {}};
  return std::vector<std::byte>(first, last);
}

}  // namespace lathe::testing
