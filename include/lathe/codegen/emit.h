// Owns the step from a kernel key to PTX text, by one of three routes.
//
// Needs no GPU and no driver. Threads: emit() may be called from any number of threads at once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lathe/codegen/kernel_key.h"
#include "lathe/codegen/kernel_table.h"
#include "lathe/codegen/result.h"
#include "lathe/codegen/target.h"

namespace lathe {

// Where to find the compilers. Empty: the usual names, through the dynamic linker.
struct CompilerPaths {
  std::string nvrtc = {};  // libnvrtc.so.13 or .12
  std::string llvm = {};   // liblathe_llvm.so
};

// The compilers of the NVRTC and LLVM routes, each loaded on first use. The text route needs none.
class Compilers {
 public:
  explicit Compilers(CompilerPaths paths = {});
  ~Compilers();
  Compilers(const Compilers&) = delete;
  Compilers& operator=(const Compilers&) = delete;

  // Ok, or why the route cannot run here (library not found, too old ...).
  Result<void> available(Route route) const;
  // "NVRTC 13.0 (libnvrtc.so.13)", "LLVM 22.1.8", "text".
  Result<std::string> version(Route route) const;
  // The file its library was loaded from; empty for the text route.
  Result<std::string> library(Route route) const;

  struct State;
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

struct Ptx {
  std::string text;
  std::string entry;  // the entry point: key.symbol()
  Geometry geometry;
  Route route;
  Target target;
  std::string compiler;
  double milliseconds = 0;
};

// Lowers one key by one route. Refuses with a reason: the key is invalid, the route does not cover
// it, its compiler is missing, or the compiler failed (detail "log").
Result<Ptx> emit(const KernelKey& key, const Target& target, Route route,
                 const Compilers& compilers);

// Tries the routes in order and returns the first that works; the error lists every refusal.
Result<Ptx> emit_first(const KernelKey& key, const Target& target, std::span<const Route> order,
                       const Compilers& compilers);

// Identifies the generator: changes whenever its own sources, a device source or a template does.
// With key, target, route and compiler version it determines the PTX.
std::string codegen_fingerprint();

// The CUDA C++ source that the NVRTC route compiles, headers included by name.
Result<std::string> cuda_source(const KernelKey& key);

}  // namespace lathe
