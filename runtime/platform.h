// Owns the seam between Lathe and the machine: what tests put in the driver's and the compilers'
// place.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lathe/codegen/custom_kernel.h"
#include "lathe/codegen/emit.h"
#include "lathe/codegen/program.h"
#include "runtime/assembler.h"
#include "runtime/context.h"

namespace lathe {

// From a key to a cubin, in two steps, each of which may be skipped for a cached result.
class Toolchain {
 public:
  virtual ~Toolchain() = default;
  // Ok, or why this route cannot lower this key here.
  virtual Result<void> covers(const KernelKey& key, Route route) const = 0;
  // Name and version of the route's compiler.
  virtual Result<std::string> compiler(Route route) const = 0;
  // Changes whenever the same key might lower to other PTX by the same compiler.
  virtual std::string fingerprint() const = 0;
  virtual Result<Ptx> emit(const KernelKey& key, const Target& target, Route route) const = 0;
  // A persistent kernel; only compilers that can make one do.
  virtual Result<Ptx> emit(const Program& program, const Target& target) const {
    static_cast<void>(program), static_cast<void>(target);
    return Error{Code::not_eligible, "this tool chain makes no persistent kernels", {}};
  }
  // A kernel of the caller's own.
  virtual Result<Ptx> emit(const CustomKernel& kernel, const Target& target) const {
    static_cast<void>(kernel), static_cast<void>(target);
    return Error{Code::not_eligible, "this tool chain makes no custom kernels", {}};
  }
  virtual const Assembler& assembler() const = 0;
};

// The compilers of codegen and the assembler of this machine. What was passed over goes to `notes`.
Result<std::unique_ptr<Toolchain>> open_toolchain(const Context& context,
                                                  const CompilerPaths& compilers,
                                                  std::vector<std::string>& notes);

struct Platform {
  const Driver* driver = nullptr;  // null: the system's
  // Empty: open_toolchain.
  std::function<std::unique_ptr<Toolchain>()> toolchain;
};

}  // namespace lathe
