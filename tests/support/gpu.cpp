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
constexpr std::size_t kMargin = 4096;

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
  CUresult (*granularity)(std::size_t*, const CUmemAllocationProp*,
                          CUmemAllocationGranularity_flags) = nullptr;
  CUresult (*reserve)(CUdeviceptr*, std::size_t, std::size_t, CUdeviceptr,
                      unsigned long long) = nullptr;
  CUresult (*create)(CUmemGenericAllocationHandle*, std::size_t, const CUmemAllocationProp*,
                     unsigned long long) = nullptr;
  CUresult (*map)(CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle,
                  unsigned long long) = nullptr;
  CUresult (*set_access)(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t) = nullptr;
  CUresult (*forget)(CUmemGenericAllocationHandle) = nullptr;
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
    get(granularity, "cuMemGetAllocationGranularity");
    get(reserve, "cuMemAddressReserve");
    get(create, "cuMemCreate");
    get(map, "cuMemMap");
    get(set_access, "cuMemSetAccess");
    get(forget, "cuMemRelease");
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

Result<Gpu::Region> Gpu::map(std::size_t bytes) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  std::size_t page = 0;
  LATHE_TRY(checked(driver_->granularity(&page, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                    "cuMemGetAllocationGranularity"));
  const std::size_t mapped = (bytes + page - 1) / page * page;
  if (const auto found = unused_.find(mapped); found != unused_.end())
    return Region{unused_.extract(found).mapped(), mapped};
  CUdeviceptr reserved = 0;
  LATHE_TRY(
      checked(driver_->reserve(&reserved, mapped + 2 * page, page, 0, 0), "cuMemAddressReserve"));
  CUmemGenericAllocationHandle memory = 0;
  LATHE_TRY(checked(driver_->create(&memory, mapped, &properties, 0), "cuMemCreate"));
  const CUdeviceptr address = reserved + page;
  const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  Result<void> made = checked(driver_->map(address, mapped, 0, memory, 0), "cuMemMap");
  driver_->forget(memory);  // it lives as long as it is mapped
  LATHE_TRY(std::move(made));
  LATHE_TRY(checked(driver_->set_access(address, mapped, &access, 1), "cuMemSetAccess"));
  return Region{static_cast<std::uint64_t>(address), mapped};
}

void Gpu::unmap(Region region) {
  unused_.emplace(region.bytes, region.address);
}

Result<void> Gpu::write(std::uint64_t to, std::span<const std::byte> from) {
  return checked(driver_->to_device(to, from.data(), from.size()), "cuMemcpyHtoD");
}

Result<void> Gpu::read(std::span<std::byte> to, std::uint64_t from) {
  return checked(driver_->to_host(to.data(), from, to.size()), "cuMemcpyDtoH");
}

Result<void> Gpu::run(const std::string& image, const std::string& entry, const Geometry& geometry,
                      std::span<const std::uint64_t> pointers) {
  std::array<char, 8192> log{};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
  CUmodule module = nullptr;
  if (Result<void> loaded =
          checked(driver_->load(&module, image.c_str(), 2, options, values), "cuModuleLoadDataEx");
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
                                  std::size_t alignment, Placement placement) {
  LATHE_ASSIGN(const Gpu::Region region, gpu.map(contents.size() + alignment));
  const std::size_t offset = placement == Placement::start
                                 ? alignment
                                 : (region.bytes - contents.size()) / alignment * alignment;
  GpuBuffer buffer(gpu, region, region.address + offset, contents.size());
  std::vector<std::byte> all(static_cast<std::size_t>(buffer.past() - buffer.first()), kMark);
  std::copy(contents.begin(), contents.end(),
            all.begin() + static_cast<std::ptrdiff_t>(buffer.address_ - buffer.first()));
  LATHE_TRY(gpu.write(buffer.first(), all));
  return buffer;
}

GpuBuffer::GpuBuffer(GpuBuffer&& other) noexcept
    : gpu_(other.gpu_),
      region_(std::exchange(other.region_, {})),
      address_(other.address_),
      size_(other.size_) {}

GpuBuffer::~GpuBuffer() {
  if (region_.bytes > 0) gpu_->unmap(region_);
}

std::uint64_t GpuBuffer::first() const {
  return address_ - std::min<std::uint64_t>(address_ - region_.address, kMargin);
}

std::uint64_t GpuBuffer::past() const {
  const std::uint64_t end = address_ + size_;
  return end + std::min<std::uint64_t>(region_.address + region_.bytes - end, kMargin);
}

Result<std::vector<std::byte>> GpuBuffer::contents() const {
  std::vector<std::byte> all(static_cast<std::size_t>(past() - first()));
  LATHE_TRY(gpu_->read(all, first()));
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(address_ - first());
  const auto end = begin + static_cast<std::ptrdiff_t>(size_);
  const auto marked = [](std::byte b) { return b == kMark; };
  if (!std::all_of(all.begin(), begin, marked) || !std::all_of(end, all.end(), marked))
    return Error{Code::internal, "memory beside a buffer changed", {}};
  return std::vector<std::byte>(begin, end);
}

}  // namespace lathe::testing
