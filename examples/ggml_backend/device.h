// Owns one GPU as the back end uses it: Lathe's device on its primary context, a stream, scratch,
// and the kernels that were asked for. ggml may call from several threads: `mutex` guards all.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "driver.h"
#include "lathe/lathe.h"
#include "steps.h"

namespace lathe_ggml {

// Makes the device's context current while it lives.
class ContextScope {
 public:
  explicit ContextScope(CUctx_st* context) { driver()->push_context(context); }
  ~ContextScope() {
    CUctx_st* popped = nullptr;
    driver()->pop_context(&popped);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
};

class Device {
 public:
  // Null where it cannot be opened, which is logged. Opened once; lives as long as the process.
  static Device* open(int ordinal);

  CUctx_st* context() const { return context_; }
  CUstream_st* stream() const { return stream_; }
  std::mutex& mutex() { return mutex_; }

  // The kernel of a step, built if need be; null where that fails, which is logged.
  const lathe_kernel* kernel(const Step& step);
  // At least so many bytes, good until the next call; 0 where there are none.
  std::uint64_t scratch(std::int64_t bytes);

 private:
  bool start(int ordinal);
  lathe_status load(const Step& step, lathe_kernel** kernel);

  std::mutex mutex_;
  CUctx_st* context_ = nullptr;
  CUstream_st* stream_ = nullptr;
  lathe_device* lathe_ = nullptr;
  std::unordered_map<std::string, lathe_kernel*> kernels_;
  std::uint64_t scratch_ = 0;
  std::int64_t scratch_bytes_ = 0;
};

// True for success; else the failure is logged, with what was tried.
bool driver_did(int status, const char* what);
void log_last_error(const char* what);

}  // namespace lathe_ggml
