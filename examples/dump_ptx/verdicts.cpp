// Owns the run over all kernels and the words of a verdict.
#include "examples/dump_ptx/verdicts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "examples/command_line.h"
#include "examples/dump_ptx/ground.h"
#include "examples/progress_line.h"

namespace lathe::dump_ptx {

namespace {

using verification::KernelCase;
using verification::Verdict;

// Operations of one kernel among many: some seconds of emulation.
constexpr std::int64_t kMostEmulated = 200'000'000;

std::string figures(const Verdict& verdict, double bound) {
  if (bound == 0) return "the same bits as the oracle's";
  return fmt::format("relative error {:.2g}, bound {:.2g}", verdict.error, bound);
}

// Why one of many kernels is not run, or nothing.
std::optional<std::string> why_skipped(const KernelCase& kernel_case, const Ground& ground,
                                       const Options& options) {
  if (ground.emulated()) {
    if (verification::cost_of(kernel_case).operations <= kMostEmulated) return std::nullopt;
    return "too large to be emulated among others; name it alone";
  }
  const KernelKey& key = kernel_case.key;
  if (const auto covered = target_covers(key, ground.target()); !covered)
    return covered.error().message;
  if (std::ranges::none_of(options.routes,
                           [&](Route route) { return bool(route_covers(key, route)); }))
    return "no PTX template covers it";
  return std::nullopt;
}

struct Counts {
  int verified = 0, wrong = 0, skipped = 0, failed = 0;
};

class Verification {
 public:
  Verification(const Options& options, Ground& ground, command_line::ProgressLine& progress)
      : options_(options), ground_(ground), progress_(progress) {}

  // Those of the kernels that are to be run.
  std::vector<KernelKey> choose(std::span<const KernelKey> keys) {
    std::vector<KernelKey> chosen;
    for (const KernelKey& key : keys) {
      const KernelCase kernel_case = verification::case_at(key, options_.position);
      const auto why = why_skipped(kernel_case, ground_, options_);
      if (!why || keys.size() == 1) {
        chosen.push_back(key);
        continue;
      }
      command_line::say(fmt::format("{}: skipped, {}\n", key.text(), *why));
      ++counts_.skipped;
    }
    return chosen;
  }

  void run(const KernelKey& key) {
    const Result<void> told = tell_verdict(key);
    if (told) return;
    progress_.clear();
    command_line::print_error("dump_ptx", Error(told.error()).with("key", key.text()));
    ++counts_.failed;
  }

  const Counts& counts() const { return counts_; }

 private:
  Result<void> tell_verdict(const KernelKey& key) {
    const KernelCase kernel_case = verification::case_at(key, options_.position);
    LATHE_ASSIGN(const std::string route, ground_.prepare(key));
    LATHE_ASSIGN(const Verdict verdict,
                 verification::verify(kernel_case, options_.seed,
                                      [&](const std::vector<verification::Bytes>& arguments) {
                                        return ground_.run(key, arguments);
                                      }));
    progress_.clear();
    ++(verdict.problem.empty() ? counts_.verified : counts_.wrong);
    return command_line::print(fmt::format("{}: {}; {} on {}, seed {}\n", kernel_case.text(),
                                           verdict.problem.empty()
                                               ? "ok, " + figures(verdict, error_bound(key))
                                               : "WRONG, " + verdict.problem,
                                           route, ground_.name(), options_.seed));
  }

  const Options& options_;
  Ground& ground_;
  command_line::ProgressLine& progress_;
  Counts counts_;
};

}  // namespace

int verify(std::span<const KernelKey> keys, const Options& options) {
  std::string why;
  const Result<std::unique_ptr<Ground>> ground = open_ground(options, why);
  if (!ground) {
    command_line::print_error("dump_ptx", ground.error());
    return command_line::kFailure;
  }
  if (!why.empty()) command_line::say(fmt::format("dump_ptx: verifying by emulation: {}\n", why));
  command_line::ProgressLine progress(true);
  Verification verification(options, **ground, progress);
  const std::vector<KernelKey> chosen = verification.choose(keys);
  const Progress show = [&](std::string_view what, std::int64_t done, std::int64_t total) {
    progress.show(what, done, total);
  };
  (*ground)->make(chosen, show);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    show("verifying kernels", std::int64_t(i), std::int64_t(chosen.size()));
    verification.run(chosen[i]);
  }
  progress.clear();
  const Counts& counts = verification.counts();
  if (keys.size() > 1)
    command_line::say(fmt::format("{} as their oracles, {} wrong, {} skipped, {} failed\n",
                                  counts.verified, counts.wrong, counts.skipped, counts.failed));
  const bool good = counts.verified > 0 && counts.wrong + counts.failed == 0;
  return good ? command_line::kSuccess : command_line::kFailure;
}

}  // namespace lathe::dump_ptx
