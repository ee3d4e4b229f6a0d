// Owns memory and handles of the driver: device buffers, pinned host buffers, streams, events.
//
// Each is freed in the context it was made in, which must outlive it.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "runtime/context.h"

namespace lathe {

// A handle that is destroyed by one driver call. The traits say which.
template <typename Traits>
class DriverHandle {
 public:
  using Value = typename Traits::Value;
  DriverHandle() = default;
  DriverHandle(const Context& context, Value value) : context_(&context), value_(value) {}
  DriverHandle(DriverHandle&& other) noexcept
      : context_(other.context_), value_(std::exchange(other.value_, Value{})) {}
  DriverHandle& operator=(DriverHandle&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(value_, other.value_);
    return *this;
  }
  ~DriverHandle() {
    if (value_ == Value{}) return;
    // A context that can no longer be entered has taken the handle with it.
    if (const auto scope = context_->enter()) Traits::destroy(context_->driver(), value_);
  }
  Value get() const { return value_; }

 private:
  const Context* context_ = nullptr;
  Value value_{};
};

struct DeviceBufferTraits {
  using Value = CUdeviceptr;
  static void destroy(const Driver& driver, Value value) { driver.cuMemFree(value); }
};
struct PinnedTraits {
  using Value = void*;
  static void destroy(const Driver& driver, Value value) { driver.cuMemFreeHost(value); }
};
struct StreamTraits {
  using Value = CUstream;
  static void destroy(const Driver& driver, Value value) { driver.cuStreamDestroy(value); }
};
struct EventTraits {
  using Value = CUevent;
  static void destroy(const Driver& driver, Value value) { driver.cuEventDestroy(value); }
};
using DeviceBuffer = DriverHandle<DeviceBufferTraits>;
using PinnedBuffer = DriverHandle<PinnedTraits>;
using Stream = DriverHandle<StreamTraits>;
using Event = DriverHandle<EventTraits>;

// All of these want the context to be current. A failure to allocate names what for, the bytes
// needed and the bytes free.
inline Result<DeviceBuffer> allocate_device(const Context& context, std::int64_t bytes,
                                            const char* what) {
  const Driver& driver = context.driver();
  CUdeviceptr pointer = 0;
  const CUresult status = driver.cuMemAlloc(&pointer, std::size_t(bytes > 0 ? bytes : 1));
  if (status == CUDA_SUCCESS) return DeviceBuffer(context, pointer);
  Error error = driver_error(driver, status, "cuMemAlloc");
  if (error.code == Code::out_of_memory) {
    std::size_t free = 0, total = 0;
    driver.cuMemGetInfo(&free, &total);
    error.message = fmt::format("There is no device memory for the {}.", what);
    error.details.push_back({"needed", fmt::format("{}", bytes)});
    error.details.push_back({"free", fmt::format("{}", free)});
  }
  return error;
}

inline Result<PinnedBuffer> allocate_pinned(const Context& context, std::int64_t bytes) {
  void* pointer = nullptr;
  LATHE_DRIVER_CALL(context.driver(), cuMemAllocHost, &pointer, std::size_t(bytes));
  return PinnedBuffer(context, pointer);
}

inline Result<Stream> create_stream(const Context& context) {
  CUstream stream = nullptr;
  // Non-blocking: does not wait for what others put on the legacy default stream.
  LATHE_DRIVER_CALL(context.driver(), cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  return Stream(context, stream);
}

inline Result<Event> create_event(const Context& context, unsigned flags) {
  CUevent event = nullptr;
  LATHE_DRIVER_CALL(context.driver(), cuEventCreate, &event, flags);
  return Event(context, event);
}

}  // namespace lathe
