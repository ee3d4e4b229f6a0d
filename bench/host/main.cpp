// bench_host: what keys, emission and look-ups of kernels take on the host.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "bench/host/benchmarks.h"
#include "examples/command_line.h"
#include "examples/shared_options.h"

namespace lathe::bench::host {

namespace {

constexpr const char* kDescription =
    "Measures the host's side of a kernel: keys, emission by each route, look-ups in memory and on "
    "disk.";

constexpr const char* kFooter = R"(Options of Google Benchmark apply too, such as:
  bench_host --benchmark_filter=emit/llvm --benchmark_repetitions=5
  bench_host --benchmark_list_tests --benchmark_format=json
Emission is measured by the routes that work here; look-ups need a GPU and are else skipped.)";

int run(int argc, char** argv) {
  CLI::App app(kDescription, "bench_host");
  app.footer(kFooter);
  app.set_version_flag("--version", command_line::version("bench_host"));
  CompilerPaths paths;
  command_line::add_compiler_options(app, paths);
  app.allow_extras();
  if (const auto status = command_line::parse(app, argc, argv)) return *status;

  std::vector<std::string> rest = app.remaining();
  std::vector<char*> words = {argv[0]};
  for (std::string& word : rest) words.push_back(word.data());
  int count = static_cast<int>(words.size());
  ::benchmark::Initialize(&count, words.data());
  if (count > 1) {
    command_line::print_usage_error("bench_host", std::string(words[1]) + " is no option");
    return command_line::kUsage;
  }
  const Compilers compilers(paths);
  register_key_benchmarks();
  register_emission_benchmarks(compilers);
  register_device_benchmarks(paths);
  ::benchmark::RunSpecifiedBenchmarks();
  ::benchmark::Shutdown();
  return command_line::kSuccess;
}

}  // namespace

}  // namespace lathe::bench::host

int main(int argc, char** argv) {
  lathe::command_line::open_standard_streams();
  return lathe::bench::host::run(argc, argv);
}
