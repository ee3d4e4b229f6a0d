// Owns one GPU context seen as a place for kernels: build, load and launch single kernels, with the
// caller's stream and the caller's pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/codegen/custom_kernel.h"
#include "lathe/codegen/emit.h"
#include "lathe/codegen/kernel_key.h"
#include "lathe/codegen/result.h"
#include "lathe/codegen/target.h"
#include "lathe/plan/gpu_profile.h"
#include "lathe/runtime/cache.h"
#include "lathe/runtime/log.h"

struct CUctx_st;     // CUcontext is CUctx_st*
struct CUstream_st;  // CUstream is CUstream_st*

namespace lathe {

// What a long operation is doing: "uploading weights", 120, 470 (bytes, kernels ...). Called on the
// thread that started the operation.
using Progress = std::function<void(std::string_view what, std::int64_t done, std::int64_t total)>;

// Where memory comes from in place of the driver, a pair of functions for each kind; null: the
// driver's own calls. They run on threads that open and close devices and sessions, with the
// context current, and do not throw.
struct MemoryHooks {
  void* user = nullptr;
  // An address aligned to 256 bytes; 0 where there is none.
  std::uint64_t (*allocate_device)(void* user, std::size_t bytes) = nullptr;
  void (*free_device)(void* user, std::uint64_t address) = nullptr;
  // Page-locked host memory that the device reads and writes at the same address.
  void* (*allocate_pinned)(void* user, std::size_t bytes) = nullptr;
  void (*free_pinned)(void* user, void* address) = nullptr;
};

struct DeviceOptions {
  int device = 0;                  // ordinal, when no context is given
  CUctx_st* context = nullptr;     // borrowed; null = the device's primary context is retained
  std::vector<Route> routes = {};  // order of preference; empty = default_routes()
  CompilerPaths compilers = {};
  bool disk_cache = true;
  std::string cache_directory = {};  // empty: LATHE_CACHE_DIR, XDG_CACHE_HOME/lathe, ~/.cache/lathe
  bool cache_read_only = false;      // takes what is there and writes nothing
  std::int64_t cache_cap_bytes = 0;  // 0: LATHE_CACHE_CAP, else 512 MiB
  LogHook log = {};                  // empty: LATHE_LOG, else nothing
  std::string dump_directory = {};   // for PTX and cubins of what is built; empty: LATHE_DUMP
  MemoryHooks memory = {};           // of its sessions
};

// The order of routes where the caller names none.
std::span<const Route> default_routes();

// A kernel as it was built and loaded.
struct KernelInfo {
  std::string name;  // the key's text, or that of a custom kernel
  KernelKey key;     // of a kernel that has one
  Geometry geometry;
  Route route = Route::llvm;
  std::string compiler;
  bool from_cache = false;
  int registers = 0;     // per thread
  int local_bytes = 0;   // per thread: spills
  int shared_bytes = 0;  // static, per block
  std::int64_t cubin_bytes = 0;
  // Milliseconds of the compiler, the assembler and the driver; 0 for what was not needed.
  double emit_ms = 0;
  double assemble_ms = 0;
  double load_ms = 0;
};

// A loaded kernel; valid while its Device lives.
struct Kernel;

struct KernelCounts {
  int built = 0;        // by a compiler
  int from_disk = 0;    // loaded from the disk cache
  int from_memory = 0;  // asked for again
};

// Threads: all members may be called from any number of threads at once.
class Device {
 public:
  static Result<std::shared_ptr<Device>> open(const DeviceOptions& options);
  virtual ~Device() = default;

  virtual const Target& target() const = 0;
  virtual const GpuProfile& profile() const = 0;
  virtual std::string description() const = 0;  // "NVIDIA H200, sm_90a, driver 13.0"
  virtual std::string assembler() const = 0;    // "nvJitLink 13.0 (libnvJitLink.so.13)"

  // Builds and loads a kernel, once per key. Never call it on the hot path.
  virtual Result<const Kernel*> kernel(const KernelKey& key) = 0;
  // The same for a kernel of the caller's own, once per name: invalid_argument when the name has
  // been given to other code.
  virtual Result<const Kernel*> kernel(const CustomKernel& custom) = 0;
  // The same for many keys, on all cores.
  virtual Result<void> prepare(std::span<const KernelKey> keys, const Progress& progress) = 0;
  virtual const KernelInfo& info(const Kernel& kernel) const = 0;
  virtual KernelCounts counts() const = 0;
  // All zero where there is no disk cache.
  virtual CacheCounts cache_counts() const = 0;
  virtual std::vector<std::string> notes() const = 0;

  // Launches on the caller's stream with device addresses in the order of the kernel's parameters
  // (KernelRow::params, CustomKernel::params). Refuses a wrong number of arguments, a null and a
  // misaligned one before the launch. Allocates nothing, does not wait.
  virtual Result<void> launch(const Kernel& kernel, std::span<const std::uint64_t> arguments,
                              CUstream_st* stream) = 0;
};

}  // namespace lathe
