// Owns the order of a trial's parts.
#include "tests/codegen/key_trial.h"

#include <fmt/format.h>

#include "runtime/assembler.h"
#include "tests/codegen/drawn_keys.h"
#include "tests/codegen/kernel_runs.h"
#include "tests/codegen/ptx_lint.h"
#include "tests/codegen/ptx_text.h"

namespace lathe::testing {
namespace {

// One key's way through its trial.
class Trial {
 public:
  Trial(const KernelKey& key, std::uint64_t seed, const TrialTools& tools, TrialTally& tally)
      : key_(key), random_(seed), tools_(tools), tally_(tally) {}

  std::vector<std::string> run() {
    if (const std::string faults = table_faults(key_); !faults.empty()) fault(faults);
    if (!check_key(key_)) {
      ++tally_.refused;
    } else if (const Result<void> served = target_covers(key_, tools_.target); !served) {
      ++tally_.unserved;
      if (served.error().message.size() < 10) fault("unserved without a reason");
    } else {
      ++tally_.kernels;
      prepare();
      for (const Route route : tools_.routes)
        if (route_covers(key_, route) && tools_.compilers->available(route)) try_route(route);
    }
    return std::move(lines_);
  }

 private:
  void fault(const std::string& what) { lines_.push_back(key_.text() + ": " + what); }

  // Draws arguments, takes the oracle's results and the emulator's, for kernels that are not too
  // large.
  void prepare() {
    case_ = case_at(key_, random_.below(100));
    std::int64_t bytes = 0;
    for (const Param& param : row(key_.type).params(key_))
      bytes += static_cast<std::int64_t>(argument_bytes(case_, param));
    runs_ = bytes <= tools_.most_bytes && cost_of(case_).operations <= tools_.most_operations &&
            (tools_.gpu || tools_.emulates);
    if (!runs_) {
      ++tally_.too_large;
      return;
    }
    for (int draw = 0; draw < draws(case_); ++draw) {
      const std::vector<Bytes> arguments = make_arguments(case_, random_.bits());
      given_.push_back(device_arguments(case_, arguments));
      run_oracle(case_, expected_.emplace_back(arguments));
    }
    if (!tools_.emulates) return;
    Comparison comparison(case_);
    for (std::size_t draw = 0; draw < given_.size(); ++draw) {
      Result<std::vector<Bytes>> after =
          emulated_run(case_, given_[draw], Placement::end, random_.bits());
      if (!after) return fault("emulated: " + after.error().text());
      comparison.add(expected_[draw], *after);
      emulated_.push_back(std::move(*after));
    }
    ++tally_.emulated;
    if (const std::string problem = comparison.problem(); !problem.empty())
      fault("emulated: " + problem);
  }

  void try_route(Route route) {
    const std::string by = std::string(route_name(route)) + ": ";
    TrialTally::ByRoute& counts = tally_.routes[static_cast<int>(route)];
    const Result<Ptx> ptx = emit(key_, tools_.target, route, *tools_.compilers);
    if (!ptx) return fault(by + ptx.error().text());
    ++counts.emitted;
    const Result<Ptx> again = emit(key_, tools_.target, route, *tools_.compilers);
    if (again && again->text == ptx->text)
      ++counts.same_text;
    else
      fault(by + "its text is another one the second time");
    const std::string faults = route == Route::nvrtc
                                   ? broken_rules(*ptx, key_)
                                   : ptx_faults(*ptx, key_) + inexact_faults(ptx->text, key_);
    if (!faults.empty()) fault(by + faults);
    std::string image = ptx->text;
    if (tools_.assembler) {
      const Result<Cubin> cubin = tools_.assembler->assemble(ptx->text, tools_.target);
      if (!cubin) return fault(by + cubin.error().text());
      ++counts.assembled;
      if (const int stack = cubin_stack_bytes(*cubin); stack != 0) {
        ++counts.with_stack;
        lines_.push_back(fmt::format("note: {}: {}{} bytes of stack", key_.text(), by, stack));
      }
      image.assign(reinterpret_cast<const char*>(cubin->data()), cubin->size());
    }
    const bool exact = (route != Route::text || template_sums_in_order(key_)) &&
                       inexact_opcodes(ptx->text).empty();
    if (tools_.gpu && runs_) launch(image, by, exact, counts);
  }

  void launch(const std::string& image, const std::string& by, bool exact,
              TrialTally::ByRoute& counts) {
    Comparison comparison(case_);
    bool same = exact;
    for (std::size_t draw = 0; draw < given_.size(); ++draw) {
      const Placement placement = draw % 2 == 0 ? Placement::end : Placement::start;
      const Result<std::vector<Bytes>> after =
          gpu_run(*tools_.gpu, case_, image, given_[draw], placement);
      if (!after) return fault(by + after.error().text());
      comparison.add(expected_[draw], *after);
      if (draw < emulated_.size()) same = same && *after == emulated_[draw];
    }
    ++counts.launched;
    if (const std::string problem = comparison.problem(); !problem.empty()) fault(by + problem);
    if (!exact || emulated_.empty()) return;
    ++counts.exact;
    if (same)
      ++counts.same_bits;
    else
      fault(by + "bits differ from the emulator's");
  }

  const KernelKey& key_;
  Random random_;
  const TrialTools& tools_;
  TrialTally& tally_;
  std::vector<std::string> lines_;
  KernelCase case_;
  bool runs_ = false;
  std::vector<std::vector<Bytes>> given_, expected_, emulated_;  // by draw
};

}  // namespace

std::vector<std::string> try_key(const KernelKey& key, std::uint64_t seed, const TrialTools& tools,
                                 TrialTally& tally) {
  return Trial(key, seed, tools, tally).run();
}

}  // namespace lathe::testing
