// Owns the allocation of memory, from the driver or from the caller's hooks, and the wording of its
// failures.
#include "runtime/device_memory.h"

#include <fmt/format.h>

namespace lathe {
namespace {

constexpr std::uint64_t kAlignment = 256;

Error none_given(const char* kind, const char* what, std::size_t bytes) {
  return Error{
      Code::out_of_memory,
      fmt::format("There is no {} memory for the {}: the caller's allocator gave none of {} bytes.",
                  kind, what, bytes),
      {}}
      .with("needed", fmt::format("{}", bytes));
}

}  // namespace

Result<DeviceBuffer> allocate_device(const Context& context, std::int64_t bytes, const char* what) {
  const Driver& driver = context.driver();
  const std::size_t size = std::size_t(bytes > 0 ? bytes : 1);
  if (const MemoryHooks& hooks = context.memory(); hooks.allocate_device) {
    const std::uint64_t address = hooks.allocate_device(hooks.user, size);
    if (address == 0) return none_given("device", what, size);
    DeviceBuffer buffer(context, address);
    if (address % kAlignment == 0) return buffer;
    return Error{
        Code::invalid_argument,
        fmt::format("The caller's allocator gave an address for the {} that is not aligned "
                    "to {} bytes.",
                    what, kAlignment),
        {}};
  }
  CUdeviceptr pointer = 0;
  const CUresult status = driver.cuMemAlloc(&pointer, size);
  if (status == CUDA_SUCCESS) return DeviceBuffer(context, pointer);
  Error error = driver_error(driver, status, "cuMemAlloc");
  if (error.code != Code::out_of_memory) return error;
  std::size_t free = 0, total = 0;
  driver.cuMemGetInfo(&free, &total);
  error.message =
      fmt::format("There is no device memory for the {}: it takes {} bytes, and {} are free.", what,
                  bytes, free);
  return std::move(error)
      .with("needed", fmt::format("{}", bytes))
      .with("free", fmt::format("{}", free));
}

Result<PinnedBuffer> allocate_pinned(const Context& context, std::int64_t bytes, const char* what) {
  const std::size_t size = std::size_t(bytes);
  if (const MemoryHooks& hooks = context.memory(); hooks.allocate_pinned) {
    void* address = hooks.allocate_pinned(hooks.user, size);
    if (!address) return none_given("pinned host", what, size);
    return PinnedBuffer(context, address);
  }
  void* pointer = nullptr;
  const CUresult status = context.driver().cuMemAllocHost(&pointer, size);
  if (status == CUDA_SUCCESS) return PinnedBuffer(context, pointer);
  Error error = driver_error(context.driver(), status, "cuMemAllocHost");
  if (error.code != Code::out_of_memory) return error;
  error.message =
      fmt::format("There is no pinned host memory for the {}: it takes {} bytes.", what, bytes);
  return std::move(error).with("needed", fmt::format("{}", bytes));
}

}  // namespace lathe
