// Owns the benchmarks of a device's kernels: one that is loaded, and one from the disk cache.
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <system_error>

#include "bench/host/benchmarks.h"

namespace lathe::bench::host {

namespace {

using ::benchmark::State;

// A cache of its own, gone afterwards.
class CacheFolder {
 public:
  CacheFolder() {
    std::error_code ignored;
    std::string pattern =
        (std::filesystem::temp_directory_path(ignored) / "bench_host.XXXXXX").string();
    if (::mkdtemp(pattern.data())) path_ = pattern;
  }
  ~CacheFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

DeviceOptions options_with(const CompilerPaths& paths, const CacheFolder& cache) {
  DeviceOptions options;
  options.compilers = paths;
  options.cache_directory = cache.path();
  options.disk_cache = !cache.path().empty();
  return options;
}

void loaded_kernel(State& state, const KernelKey& key, const CompilerPaths& paths) {
  const CacheFolder cache;
  const auto device = Device::open(options_with(paths, cache));
  if (!device) return state.SkipWithError(device.error().message.c_str());
  for (auto _ : state) {
    const auto kernel = (*device)->kernel(key);
    if (!kernel) return state.SkipWithError(kernel.error().message.c_str());
    ::benchmark::DoNotOptimize(*kernel);
  }
}

// Each time by a device that knows nothing yet; opening it does not count.
void cached_kernel(State& state, const KernelKey& key, const CompilerPaths& paths) {
  const CacheFolder cache;
  bool filled = false;
  for (auto _ : state) {
    state.PauseTiming();
    auto device = Device::open(options_with(paths, cache));
    if (!device) return state.SkipWithError(device.error().message.c_str());
    if (!filled) {
      if (const auto kernel = (*device)->kernel(key); !kernel)
        return state.SkipWithError(kernel.error().message.c_str());
      device = Device::open(options_with(paths, cache));
      if (!device) return state.SkipWithError(device.error().message.c_str());
      filled = true;
    }
    state.ResumeTiming();
    const auto kernel = (*device)->kernel(key);
    state.PauseTiming();
    if (!kernel || !(*device)->info(**kernel).from_cache)
      return state.SkipWithError("the kernel did not come from the disk cache");
    device = std::shared_ptr<Device>();
    state.ResumeTiming();
  }
}

}  // namespace

void register_device_benchmarks(const CompilerPaths& paths) {
  for (const char* text : kKeys) {
    const Result<KernelKey> key = parse_key(text);
    if (!key) continue;
    const std::string name = row(key->type).name;
    ::benchmark::RegisterBenchmark(("kernel/loaded/" + name).c_str(), loaded_kernel, *key, paths);
    ::benchmark::RegisterBenchmark(("kernel/from_disk/" + name).c_str(), cached_kernel, *key, paths)
        ->Unit(::benchmark::kMillisecond);
  }
}

}  // namespace lathe::bench::host
