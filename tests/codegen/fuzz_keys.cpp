// Takes many keys drawn at random through their trial (key_trial.h), by several processes, so that
// a crash is one key's: fuzz_keys --keys 20000 --seed 1 --workers 16. Which keys those are, and
// their arguments, the seed says alone: --first and --keys take a part of them.
//
// Prints what is wrong, then a table of what the keys came to. The status is 1 where anything is.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "runtime/assembler.h"
#include "tests/codegen/drawn_keys.h"
#include "tests/codegen/key_trial.h"
#include "tests/codegen/worker_pool.h"
#include "tests/support/compilers.h"
#include "tests/support/gpu.h"

namespace lathe::testing {
namespace {

struct Options {
  std::int64_t keys = 100, first = 0, seconds = 600, most_bytes = 8, most_operations = 50;
  std::uint64_t seed = 1;
  int workers = 2;
  std::vector<std::string> routes = {"nvrtc", "llvm", "text"};
  bool gpu = true, emulate = true;
};

// Of all workers, in memory that they share.
struct Tallies {
  TrialTally of[256];
  std::int64_t problems[256];
};

KernelKey key_of(const Options& options, std::int64_t number, std::uint64_t& trial_seed) {
  verification::Random random(options.seed * 0x9e3779b97f4a7c15ull +
                              static_cast<std::uint64_t>(number));
  random.bits();
  const KernelKey key = drawn_key(random);
  trial_seed = random.bits();
  return key;
}

// One write, so that lines of several processes do not mix.
void print(std::string line) {
  line += '\n';
  [[maybe_unused]] const auto written = write(STDOUT_FILENO, line.data(), line.size());
}

// Everything that one process has.
class Worker {
 public:
  Worker(const Options& options, TrialTally& tally, std::int64_t& problems)
      : options_(options), tally_(tally), problems_(problems) {
    tools_.compilers = &compilers();
    for (const std::string& name : options.routes) {
      const Result<Route> route = route_by_name(name);
      if (route) tools_.routes.push_back(*route);
    }
    tools_.target = *parse_target("sm_90a");
    tools_.emulates = options.emulate;
    tools_.most_bytes = options.most_bytes << 20;
    tools_.most_operations = options.most_operations * 1'000'000;
    if (auto assembler = open_nvjitlink(path_or("LATHE_NVJITLINK", LATHE_TEST_NVJITLINK)))
      assembler_ = std::move(*assembler);
    tools_.assembler = assembler_.get();
    if (options.gpu)
      if (const Result<Gpu*> gpu = Gpu::first(); gpu) tools_.gpu = *gpu;
  }

  // False after what may have ended the GPU's context.
  bool operator()(std::int64_t number) {
    std::uint64_t seed = 0;
    const KernelKey key = key_of(options_, number, seed);
    bool good = true;
    for (const std::string& line : try_key(key, seed, tools_, tally_)) {
      print(fmt::format("{}: {}", number, line));
      if (line.starts_with("note:")) continue;
      ++problems_;
      good = false;
    }
    return good || !tools_.gpu;
  }

 private:
  const Options& options_;
  TrialTally& tally_;
  std::int64_t& problems_;
  std::unique_ptr<Assembler> assembler_;
  TrialTools tools_;
};

void add(TrialTally& sum, const TrialTally& each) {
  constexpr std::size_t kCounts = sizeof(TrialTally) / sizeof(std::int64_t);
  auto* to = reinterpret_cast<std::int64_t*>(&sum);
  const auto* from = reinterpret_cast<const std::int64_t*>(&each);
  for (std::size_t i = 0; i < kCounts; ++i) to[i] += from[i];
}

void print_table(const Options& options, const PoolOutcome& outcome, const Tallies& tallies) {
  TrialTally sum{};
  std::int64_t problems = 0;
  for (int i = 0; i < options.workers; ++i) {
    add(sum, tallies.of[i]);
    problems += tallies.problems[i];
  }
  print(
      fmt::format("keys {}..{} of seed {}: {} drawn, {} refused with a reason, {} not of this "
                  "target, {} kernels ({} too large to run here), {} emulated within the bound",
                  options.first, options.first + options.keys - 1, options.seed, outcome.done,
                  sum.refused, sum.unserved, sum.kernels, sum.too_large, sum.emulated));
  print(
      "| route | emitted | same text twice | assembled | with local memory | on the GPU | exact "
      "there | same bits |\n|---|--:|--:|--:|--:|--:|--:|--:|");
  for (const Route route : {Route::nvrtc, Route::llvm, Route::text}) {
    const TrialTally::ByRoute& r = sum.routes[static_cast<int>(route)];
    if (const Result<void> there = compilers().available(route); !there)
      print(fmt::format("{} is missing: {}", route_name(route), there.error().text()));
    print(fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |", route_name(route), r.emitted,
                      r.same_text, r.assembled, r.with_stack, r.launched, r.exact, r.same_bits));
  }
  print(fmt::format("{} problems, {} crashed or hung", problems, outcome.lost));
}

int run(const Options& options) {
  void* memory =
      mmap(nullptr, sizeof(Tallies), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 2;
  auto& tallies = *static_cast<Tallies*>(memory);
  PoolOptions pool{.workers = options.workers,
                   .first = options.first,
                   .past = options.first + options.keys,
                   .most = std::chrono::seconds(options.seconds)};
  const auto make_work = [&](int worker) -> std::function<bool(std::int64_t)> {
    auto shared = std::make_shared<Worker>(options, tallies.of[worker], tallies.problems[worker]);
    return [shared](std::int64_t number) { return (*shared)(number); };
  };
  const auto on_lost = [&](std::int64_t number, const std::string& how) {
    std::uint64_t seed = 0;
    print(fmt::format("{}: {}: {}", number, key_of(options, number, seed).text(), how));
  };
  const auto on_progress = [&](std::int64_t done) {
    if (isatty(STDERR_FILENO)) std::fprintf(stderr, "\r%ld of %ld", long(done), long(options.keys));
  };
  const PoolOutcome outcome = share_out(pool, make_work, on_lost, on_progress);
  print_table(options, outcome, tallies);
  std::int64_t problems = outcome.lost;
  for (const std::int64_t each : tallies.problems) problems += each;
  return problems > 0 ? 1 : 0;
}

}  // namespace
}  // namespace lathe::testing

int main(int argc, char** argv) {
  lathe::testing::Options options;
  CLI::App app("Takes keys drawn at random through every route, the assembler and a GPU.");
  app.add_option("--keys", options.keys, "How many");
  app.add_option("--first", options.first, "The number of the first");
  app.add_option("--seed", options.seed, "Which keys");
  app.add_option("--workers", options.workers, "Processes")->check(CLI::Range(1, 256));
  app.add_option("--route", options.routes, "Of nvrtc, llvm, text")
      ->delimiter(',')
      ->check(CLI::IsMember({"nvrtc", "llvm", "text"}));
  app.add_option("--seconds", options.seconds, "After which no key is begun");
  app.add_option("--most-mb", options.most_bytes, "Of a kernel's arguments, to run it");
  app.add_option("--most-mops", options.most_operations, "Million operations, to run a kernel");
  app.add_flag("!--no-gpu", options.gpu, "Launch nothing");
  app.add_flag("!--no-emulation", options.emulate, "Emulate nothing");
  CLI11_PARSE(app, argc, argv);
  return lathe::testing::run(options);
}
