// Owns single kernels outside of any session: device memory for their arguments, and the time of
// their launches. For programs that verify and measure; none of it belongs on a hot path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lathe/codegen/result.h"
#include "lathe/runtime/device.h"

namespace lathe {

// One thread at a time. Keeps its device open.
class Workbench {
 public:
  static Result<std::unique_ptr<Workbench>> open(std::shared_ptr<Device> device);
  virtual ~Workbench() = default;

  virtual Device& device() const = 0;
  virtual int multiprocessors() const = 0;
  virtual std::int64_t cache_bytes() const = 0;  // of the L2 cache
  virtual Result<std::int64_t> free_bytes() const = 0;

  // Device memory, aligned to 256 bytes; clear() frees all of it, as the end does.
  virtual Result<std::uint64_t> allocate(std::int64_t bytes) = 0;
  virtual void clear() = 0;
  // Both wait until the bytes are there.
  virtual Result<void> write(std::uint64_t to, std::span<const std::byte> bytes) = 0;
  virtual Result<void> read(std::span<std::byte> bytes, std::uint64_t from) = 0;

  // Launches, and waits for the end. Checks arguments as Device::launch does.
  virtual Result<void> run(const Kernel& kernel, std::span<const std::uint64_t> arguments) = 0;
  // Seconds of one of `launches` in a row, the gaps between them included; launch i takes
  // arguments[i % arguments.size()]. Three times the L2 cache of other memory is read before the
  // first one.
  virtual Result<double> time(const Kernel& kernel,
                              std::span<const std::vector<std::uint64_t>> arguments,
                              int launches) = 0;
  // As Session::read_rate(); measured anew by each call.
  virtual Result<double> read_rate() = 0;
};

}  // namespace lathe
