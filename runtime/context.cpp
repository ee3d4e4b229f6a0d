// Owns the opening of a context and the questions asked of its device.
#include "runtime/context.h"

#include <fmt/format.h>

#include <memory>

namespace lathe {

Result<Context> Context::open(const Driver& driver, CUcontext borrowed, int ordinal) {
  Context context(driver);
  LATHE_ASSIGN(context.driver_version_, lathe::driver_version(driver));
  if (borrowed) {
    context.context_ = borrowed;
    LATHE_ASSIGN(ContextScope scope, context.enter());
    LATHE_DRIVER_CALL(driver, cuCtxGetDevice, &context.device_);
  } else {
    int count = 0;
    LATHE_DRIVER_CALL(driver, cuDeviceGetCount, &count);
    if (ordinal < 0 || ordinal >= count) {
      const Code code = count == 0 ? Code::no_driver : Code::invalid_argument;
      return Error{
          code, fmt::format("There is no GPU {}: this process sees {}.", ordinal, count), {}};
    }
    LATHE_DRIVER_CALL(driver, cuDeviceGet, &context.device_, ordinal);
    LATHE_DRIVER_CALL(driver, cuDevicePrimaryCtxRetain, &context.context_, context.device_);
    context.retained_ = true;
  }
  char name[256] = {};
  LATHE_DRIVER_CALL(driver, cuDeviceGetName, name, int(sizeof name) - 1, context.device_);
  context.device_name_ = name;
  LATHE_TRY(context.read_profile());
  const int compute = context.profile_.compute;
  auto target = target_for_compute_capability(compute / 10, compute % 10);
  if (!target) return std::move(target).error().with("device", context.device_name_);
  context.target_ = target.value();
  return context;
}

Result<void> Context::read_profile() {
  LATHE_ASSIGN(const int major, attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  LATHE_ASSIGN(const int minor, attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  profile_.compute = 10 * major + minor;
  LATHE_ASSIGN(profile_.multiprocessors, attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  LATHE_ASSIGN(profile_.block_shared_bytes,
               attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  LATHE_ASSIGN(profile_.multiprocessor_shared_bytes,
               attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR));
  LATHE_ASSIGN(profile_.cache_bytes, attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
  return {};
}

Context::Context(Context&& other) noexcept
    : driver_(other.driver_),
      context_(std::exchange(other.context_, nullptr)),
      retained_(std::exchange(other.retained_, false)),
      device_(other.device_),
      driver_version_(other.driver_version_),
      device_name_(std::move(other.device_name_)),
      target_(other.target_),
      profile_(other.profile_),
      memory_(other.memory_),
      given_up_(other.given_up_.exchange(nullptr)) {}

Context::~Context() {
  if (const Error* why = given_up_.load())
    delete why;
  else if (retained_)
    driver_->cuDevicePrimaryCtxRelease(device_);
}

Result<void> Context::take_memory_from(const MemoryHooks& hooks) {
  if (!hooks.allocate_device != !hooks.free_device ||
      !hooks.allocate_pinned != !hooks.free_pinned) {
    return Error{Code::invalid_argument,
                 "The memory hooks have a function to allocate or to free without the other.",
                 {}};
  }
  memory_ = hooks;
  return {};
}

void Context::give_up(Error why) const {
  const Error* none = nullptr;
  auto reason = std::make_unique<const Error>(std::move(why));
  if (given_up_.compare_exchange_strong(none, reason.get())) reason.release();
}

Result<ContextScope> Context::enter() const {
  if (const Error* why = given_up_.load(std::memory_order_acquire)) return *why;
  LATHE_DRIVER_CALL(*driver_, cuCtxPushCurrent, context_);
  return ContextScope(*driver_);
}

Result<int> Context::attribute(CUdevice_attribute attribute) const {
  int value = 0;
  LATHE_DRIVER_CALL(*driver_, cuDeviceGetAttribute, &value, attribute, device_);
  return value;
}

Result<void> check_stream_not_capturing(const Driver& driver, CUstream stream, const char* what) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  LATHE_DRIVER_CALL(driver, cuStreamIsCapturing, stream, &status);
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return {};
  return Error{Code::invalid_argument,
               fmt::format("The stream is being captured into a graph, and {} cannot be.", what),
               {}}
      .with("hint", "end the capture first; what can be captured is Session::record_step");
}

bool is_captured(const Driver& driver, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

Result<void> check_stream_capturing(const Driver& driver, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  LATHE_DRIVER_CALL(driver, cuStreamIsCapturing, stream, &status);
  if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE) return {};
  return Error{
      Code::invalid_argument,
      status == CU_STREAM_CAPTURE_STATUS_NONE
          ? "The session's stream is not being captured, so a step cannot be recorded."
          : "The capture of the session's stream is invalid, so a step cannot be recorded.",
      {}};
}

}  // namespace lathe
