// Owns the kernels that belong to the runtime itself: PTX texts of a few lines, outside the table.
#pragma once

#include <string>

#include "lathe/codegen/program.h"
#include "runtime/device_impl.h"
#include "runtime/device_memory.h"

namespace lathe {

struct LibraryTraits {
  using Value = CUlibrary;
  static void destroy(const Context& context, Value value) {
    context.driver().cuLibraryUnload(value);
  }
};

// Loaded like any other kernel, but known by no key. Its geometry is the caller's to set.
struct ServiceKernel {
  DriverHandle<LibraryTraits> library;
  Kernel kernel;
};

// From the disk cache where the device has one. Wants the context current.
Result<ServiceKernel> load_service_kernel(const DeviceImpl& device, const std::string& ptx,
                                          const char* entry);

// The persistent kernel of a program, with its geometry. `from_cache`: nothing was compiled.
Result<ServiceKernel> load_program(const DeviceImpl& device, const Program& program);

// Ends a token on the device (ControlBlock::advance) and notes the sampled token at its position in
// `history`. With it, any number of tokens can be queued without the host. Parameters: the control
// block, an i32 per position of the context, and the last position, beyond which it does not go.
Result<ServiceKernel> load_advance_kernel(const DeviceImpl& device);

// A launch of it, with its arguments in place.
class EndOfToken {
 public:
  EndOfToken() = default;
  EndOfToken(const EndOfToken&) = delete;
  EndOfToken& operator=(const EndOfToken&) = delete;
  Result<void> load(const DeviceImpl& device, CUdeviceptr control, CUdeviceptr history,
                    int positions);
  const Kernel& kernel() const { return kernel_.kernel; }
  void** parameters() { return parameters_; }

 private:
  ServiceKernel kernel_;
  CUdeviceptr arguments_[3] = {};
  void* parameters_[3] = {};
};

}  // namespace lathe
