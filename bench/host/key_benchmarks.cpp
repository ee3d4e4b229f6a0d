// Owns the benchmarks of keys: their text, the way back, and the hash that finds a loaded kernel.
#include <benchmark/benchmark.h>

#include "bench/host/benchmarks.h"

namespace lathe::bench::host {

namespace {

using ::benchmark::State;

void text_of_key(State& state, const KernelKey& key) {
  for (auto _ : state) ::benchmark::DoNotOptimize(key.text());
}

void parse_of_text(State& state, const std::string& text) {
  for (auto _ : state) ::benchmark::DoNotOptimize(parse_key(text));
}

void hash_of_key(State& state, const KernelKey& key) {
  for (auto _ : state) ::benchmark::DoNotOptimize(hash_value(key));
}

void check_of_key(State& state, const KernelKey& key) {
  for (auto _ : state) ::benchmark::DoNotOptimize(check_key(key));
}

}  // namespace

void register_key_benchmarks() {
  for (const char* text : kKeys) {
    const Result<KernelKey> key = parse_key(text);
    if (!key) continue;
    const std::string name = row(key->type).name;
    ::benchmark::RegisterBenchmark(("key/text/" + name).c_str(), text_of_key, *key);
    ::benchmark::RegisterBenchmark(("key/parse/" + name).c_str(), parse_of_text, std::string(text));
    ::benchmark::RegisterBenchmark(("key/hash/" + name).c_str(), hash_of_key, *key);
    ::benchmark::RegisterBenchmark(("key/check/" + name).c_str(), check_of_key, *key);
  }
}

}  // namespace lathe::bench::host
