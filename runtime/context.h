// Owns the CUDA context that Lathe works in: the caller's, borrowed, or the device's primary one,
// retained. Every entry makes it current and restores what was current before.
#pragma once

#include <atomic>
#include <string>
#include <utility>

#include "lathe/codegen/result.h"
#include "lathe/codegen/target.h"
#include "lathe/plan/gpu_profile.h"
#include "lathe/runtime/device.h"
#include "runtime/driver.h"

namespace lathe {

// While it lives, the context is current on this thread.
class ContextScope {
 public:
  ContextScope() = default;
  ContextScope(ContextScope&& other) noexcept : driver_(std::exchange(other.driver_, nullptr)) {}
  ContextScope& operator=(ContextScope&&) = delete;
  ~ContextScope() {
    CUcontext popped = nullptr;
    // A pop can only fail for a context that somebody destroyed meanwhile; nothing is left to do.
    if (driver_) driver_->cuCtxPopCurrent(&popped);
  }

 private:
  friend class Context;
  explicit ContextScope(const Driver& driver) : driver_(&driver) {}

  const Driver* driver_ = nullptr;
};

class Context {
 public:
  // `borrowed` null: the primary context of device `ordinal`.
  static Result<Context> open(const Driver& driver, CUcontext borrowed, int ordinal);
  Context(Context&& other) noexcept;
  Context& operator=(Context&&) = delete;
  ~Context();

  Result<ContextScope> enter() const;
  // From now on enter() fails with `why`, and nothing in the context is freed, since any such call
  // would wait for a launch that never ends. The first reason stays.
  void give_up(Error why) const;

  const Driver& driver() const { return *driver_; }
  CUdevice device() const { return device_; }
  const std::string& device_name() const { return device_name_; }
  const Target& target() const { return target_; }
  const GpuProfile& profile() const { return profile_; }
  int driver_version() const { return driver_version_; }
  Result<int> attribute(CUdevice_attribute attribute) const;
  // Where memory comes from; as DeviceOptions::memory.
  const MemoryHooks& memory() const { return memory_; }
  // invalid_argument where a function of a pair is missing. Before anything is allocated.
  Result<void> take_memory_from(const MemoryHooks& hooks);

 private:
  explicit Context(const Driver& driver) : driver_(&driver) {}
  Result<void> read_profile();

  const Driver* driver_;
  CUcontext context_ = nullptr;
  bool retained_ = false;
  CUdevice device_ = 0;
  int driver_version_ = 0;
  std::string device_name_;
  Target target_;
  GpuProfile profile_;
  MemoryHooks memory_;
  mutable std::atomic<const Error*> given_up_ = nullptr;
};

// invalid_argument while the stream is being captured: a recording of somebody else's would take
// our work for its own.
// `what` cannot be captured, and stands in the error.
Result<void> check_stream_not_capturing(const Driver& driver, CUstream stream, const char* what);
// False also where the driver does not say.
bool is_captured(const Driver& driver, CUstream stream);
// invalid_argument while it is not, or its capture has been spoilt already.
Result<void> check_stream_capturing(const Driver& driver, CUstream stream);

}  // namespace lathe
