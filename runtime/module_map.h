// Owns the kernels loaded in one context: each key is built and loaded once, whoever asks.
//
// Threads: all members may be called from any number of threads at once.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lathe/codegen/custom_kernel.h"
#include "lathe/codegen/kernel_table.h"
#include "lathe/runtime/device.h"
#include "runtime/context.h"
#include "runtime/disk_cache.h"
#include "runtime/kernel_trace.h"
#include "runtime/platform.h"

namespace lathe {

// A loaded kernel. Its address and fields stay as they are while the map lives.
struct Kernel {
  KernelInfo info;
  std::vector<Param> params;
  std::shared_ptr<const CustomKernel> custom = {};  // what it was made of, and its params' names
  bool waits = false;  // for the kernels before, by itself, when it is launched early
  CUlibrary library = nullptr;
  CUfunction function = nullptr;
};

class ModuleMap {
 public:
  // All of these must outlive the map. `cache` and `trace` may be null.
  ModuleMap(const Context& context, const Toolchain& toolchain, const DiskCache* cache,
            std::vector<Route> routes, const KernelTrace* trace = nullptr);
  ~ModuleMap();
  ModuleMap(const ModuleMap&) = delete;
  ModuleMap& operator=(const ModuleMap&) = delete;

  // From memory, else from disk, else built. Other threads that want the same key wait for it. The
  // error lists what each route said; a later call tries again, but not to assemble the same PTX.
  Result<const Kernel*> get(const KernelKey& key);
  // The same of a kernel of the caller's own, by its name.
  Result<const Kernel*> get(const CustomKernel& custom);
  // The same for all keys, on all cores. On failure returns the error of the first key, in the
  // order given, that failed.
  // `cancelled` is asked after each; then those under way still end.
  Result<void> prepare(std::span<const KernelKey> keys, const Progress& progress,
                       const std::function<bool()>& cancelled = {});
  // In order of preference.
  std::span<const Route> routes() const { return routes_; }
  // Ok when every key is covered by at least one of the routes: asked before anything is built.
  Result<void> check_covered(std::span<const KernelKey> keys) const;
  // True when get() would return without building or loading.
  bool loaded(const KernelKey& key) const;

  // Machine code for the PTX of `subject`, written beside it where LATHE_DUMP says so. What the
  // assembler has refused stays refused, with the same error. Sets the info's time and size.
  Result<Cubin> assemble(std::string_view subject, const std::string& ptx, KernelInfo& info) const;
  // Tells the log of a kernel that was loaded.
  void tell(std::string_view subject, const KernelInfo& info) const;

  KernelCounts counts() const;
  // Routes that refused a key before another took it, and a cache that could not be written.
  std::vector<std::string> notes() const;

 private:
  struct Flight;

  // What `flights` holds for the name, or what `make` makes: once, while others wait.
  template <typename Name, typename Make>
  Result<const Kernel*> land(std::map<Name, std::shared_ptr<Flight>>& flights, const Name& name,
                             const Make& make);
  Result<Kernel> make(const KernelKey& key);
  Result<Kernel> make(std::shared_ptr<const CustomKernel> custom);
  Result<Kernel> make_by(Route route, const KernelKey& key);
  Result<Kernel> load(const KernelInfo& info, std::vector<Param> params, const std::string& entry,
                      const Cubin& cubin);
  Result<void> finish(Kernel& kernel, const std::string& entry);
  void note(std::string text);

  const Context& context_;
  const Toolchain& toolchain_;
  const DiskCache* cache_;
  const std::vector<Route> routes_;
  const KernelTrace* trace_;

  mutable std::mutex mutex_;
  std::condition_variable landed_;
  std::map<KernelKey, std::shared_ptr<Flight>> flights_;
  std::map<std::string, std::shared_ptr<Flight>> custom_flights_;
  std::vector<std::string> notes_;
  mutable std::map<std::string, Error> refused_;  // by digest of the PTX
  std::atomic<int> built_ = 0;
  std::atomic<int> from_disk_ = 0;
  std::atomic<int> from_memory_ = 0;
};

}  // namespace lathe
