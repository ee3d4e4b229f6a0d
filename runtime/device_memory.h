// Owns memory and handles of the driver: device buffers, pinned host buffers, streams, events.
//
// Each is freed in the context it was made in, which must outlive it.
#pragma once

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
    if (const auto scope = context_->enter()) Traits::destroy(*context_, value_);
  }
  Value get() const { return value_; }

 private:
  const Context* context_ = nullptr;
  Value value_{};
};

struct DeviceBufferTraits {
  using Value = CUdeviceptr;
  static void destroy(const Context& context, Value value) {
    const MemoryHooks& hooks = context.memory();
    if (hooks.free_device)
      hooks.free_device(hooks.user, value);
    else
      context.driver().cuMemFree(value);
  }
};
struct PinnedTraits {
  using Value = void*;
  static void destroy(const Context& context, Value value) {
    const MemoryHooks& hooks = context.memory();
    if (hooks.free_pinned)
      hooks.free_pinned(hooks.user, value);
    else
      context.driver().cuMemFreeHost(value);
  }
};
struct StreamTraits {
  using Value = CUstream;
  static void destroy(const Context& context, Value value) {
    context.driver().cuStreamDestroy(value);
  }
};
struct EventTraits {
  using Value = CUevent;
  static void destroy(const Context& context, Value value) {
    context.driver().cuEventDestroy(value);
  }
};
using DeviceBuffer = DriverHandle<DeviceBufferTraits>;
using PinnedBuffer = DriverHandle<PinnedTraits>;
using Stream = DriverHandle<StreamTraits>;
using Event = DriverHandle<EventTraits>;

// All of these want the context to be current. A failure to allocate names what for, the bytes
// needed and, of the device, the bytes free. Device memory is aligned to 256 bytes.
Result<DeviceBuffer> allocate_device(const Context& context, std::int64_t bytes, const char* what);
Result<PinnedBuffer> allocate_pinned(const Context& context, std::int64_t bytes, const char* what);

// Waits for a stream at its end, whichever way that is reached. Declared after buffers that the
// stream works with: the driver waits before it frees memory, but a caller's allocator need not.
class StreamRest {
 public:
  StreamRest(const Context& context, CUstream stream)
      : driver_(context.driver()), stream_(stream) {}
  ~StreamRest() { driver_.cuStreamSynchronize(stream_); }
  StreamRest(const StreamRest&) = delete;
  StreamRest& operator=(const StreamRest&) = delete;

 private:
  const Driver& driver_;
  const CUstream stream_;
};

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
