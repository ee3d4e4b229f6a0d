// Owns where a kernel is run to be verified: on a GPU, or by emulation on this machine's CPU.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "examples/dump_ptx/options.h"
#include "verification/verify.h"

namespace lathe::dump_ptx {

class Ground {
 public:
  virtual ~Ground() = default;

  virtual std::string name() const = 0;  // "NVIDIA H200, sm_90a, driver 13.0"
  virtual bool emulated() const = 0;
  virtual const Target& target() const = 0;
  // Makes kernels on all cores. What then fails, prepare() tells.
  virtual void make(std::span<const KernelKey> keys, const Progress& progress) = 0;
  // The kernel that is run next, and the route it was made by.
  virtual Result<std::string> prepare(const KernelKey& key) = 0;
  // Runs it once on its arguments and returns them as it left them. An error, too, if it wrote
  // beside them.
  virtual Result<std::vector<verification::Bytes>> run(
      const KernelKey& key, const std::vector<verification::Bytes>& arguments) = 0;
};

// The GPU, unless there is none or the options want emulation: `why` says so then, and is else
// empty.
Result<std::unique_ptr<Ground>> open_ground(const Options& options, std::string& why);

}  // namespace lathe::dump_ptx
