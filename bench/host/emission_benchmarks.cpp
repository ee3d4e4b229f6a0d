// Owns the benchmarks of emission: from a key to PTX, by each route.
#include <benchmark/benchmark.h>

#include "bench/host/benchmarks.h"

namespace lathe::bench::host {

namespace {

constexpr const char* kTarget = "sm_90a";

void emission(::benchmark::State& state, const KernelKey& key, Route route,
              const Compilers& compilers) {
  const Result<Target> target = parse_target(kTarget);
  for (auto _ : state) {
    const Result<Ptx> ptx = emit(key, *target, route, compilers);
    if (!ptx) return state.SkipWithError(ptx.error().message.c_str());
    ::benchmark::DoNotOptimize(ptx->text.data());
  }
}

}  // namespace

void register_emission_benchmarks(const Compilers& compilers) {
  for (Route route : {Route::text, Route::llvm, Route::nvrtc}) {
    if (!compilers.available(route)) continue;
    for (const char* text : kKeys) {
      const Result<KernelKey> key = parse_key(text);
      if (!key || !route_covers(*key, route)) continue;
      const std::string name = std::string("emit/") + route_name(route) + "/" + row(key->type).name;
      ::benchmark::RegisterBenchmark(name.c_str(), [key = *key, route, &compilers](auto& state) {
        emission(state, key, route, compilers);
      })->Unit(::benchmark::kMillisecond);
    }
  }
}

}  // namespace lathe::bench::host
