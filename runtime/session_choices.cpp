// Owns what a session chooses by its device.
#include "runtime/session_choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "lathe/plan/measured_tunings.h"
#include "plan/selection.h"
#include "plan/tuning_overrides.h"
#include "runtime/environment.h"
#include "runtime/prefill.h"
#include "runtime/session_base.h"
#include "runtime/weights.h"

namespace lathe {
namespace {

Result<ExecutorKind> executor_of_tuning(const std::string& name) {
  LATHE_ASSIGN(const ExecutorKind kind, executor_by_name(name));
  if (kind != ExecutorKind::cpu && kind != ExecutorKind::automatic) return kind;
  return Error{
      Code::invalid_argument,
      fmt::format("the tuning 'executor={}' is none of executor=eager, graph and mega", name),
      {}};
}

// Of LATHE_TUNING_TABLE; empty where it is not set.
Result<std::vector<MeasuredTuning>> read_tuning_table() {
  const std::string path = read_environment().tuning_table;
  if (path.empty()) return std::vector<MeasuredTuning>();
  const auto refuse = [&](Error error) {
    error.message = fmt::format("LATHE_TUNING_TABLE, {}: {}", path, error.message);
    return error;
  };
  Result<std::vector<MeasuredTuning>> tunings = read_measured_tunings(path);
  if (!tunings) return refuse(std::move(tunings).error());
  for (const MeasuredTuning& tuning : *tunings)
    if (const Result<void> valid = check_tuning(tuning.words); !valid) return refuse(valid.error());
  return tunings;
}

Result<void> take_environment(PlanOptions& options) {
  if (!options.tuning.empty()) return check_tuning(options.tuning);
  options.tuning = read_environment().tuning;
  return check_tuning_variable(options.tuning);
}

// What the table of LATHE_TUNING_TABLE says of this model, or else the library's; empty: nothing.
Result<std::string> measured_words(const GgufFile& file, const GpuProfile& gpu) {
  LATHE_ASSIGN(const ModelSpec spec, read_model_spec(file));
  const TuningClass of = tuning_class(file, spec, gpu);
  LATHE_ASSIGN(const std::vector<MeasuredTuning> own, read_tuning_table());
  const MeasuredTuning* found = find_tuning(own, of);
  if (!found) {
    LATHE_ASSIGN(const auto brought, measured_tunings());
    found = find_tuning(brought, of);
  }
  return found ? found->words : std::string();
}

// Why this word is passed over; empty where it is not.
std::string why_unused(const TuningOverride& word, const PlanOptions& options,
                       std::span<const KernelKey> keys) {
  const bool splits = word.field->integer == &KernelKey::splits;
  const bool attends = word.type == KernelType::attention || word.type == KernelType::attend;
  if (attends && splits && options.attention_splits > 0) return "attention_splits counts more";
  const bool there = std::ranges::any_of(keys, [&](const KernelKey& key) {
    // The rows of a batch have the splits of a single sequence.
    return key.type == word.type ||
           (word.type == KernelType::attend && splits && key.type == KernelType::attend_rows);
  });
  return there ? "" : fmt::format("no kernel of the plan is {}", row(word.type).name);
}

// The same of a choice that has a name.
std::string why_unused(std::string_view what, std::string_view value,
                       std::span<const Selected> choices) {
  const auto told = std::ranges::find(choices, what, &Selected::what);
  if (told == choices.end() || told->value.starts_with(value)) return "";
  return fmt::format("{} is {}, {}", what, told->value, told->reason);
}

// The plan with a kernel for each operation, which nobody has set, and why it is taken.
Result<Plan> unfused_plan(const GgufFile& file, PlanOptions options, std::string why) {
  options.fusion = Fusion::none;
  LATHE_ASSIGN(Plan plan, build_session_plan(file, options));
  plan.choices.front().reason = std::move(why);
  plan.choices.front().set = false;
  return plan;
}

Result<std::vector<Selected>> choices_of(const GgufFile& file, const SessionOptions& options,
                                         const Platform& platform) {
  LATHE_TRY(check_options(options));
  if (options.executor == ExecutorKind::cpu) {
    LATHE_ASSIGN(Plan plan, plan_for_cpu(file, options.plan));
    plan.choices.insert(plan.choices.begin(), told_of_cpu());
    std::ranges::move(told_of_unused(plan.options, plan.distinct_keys(), plan.choices),
                      std::back_inserter(plan.choices));
    return std::move(plan.choices);
  }
  LATHE_ASSIGN(const std::shared_ptr<DeviceImpl> device, device_for(options, platform));
  LATHE_ASSIGN(Plan plan, plan_for(*device, file, plan_options(options)));
  LATHE_ASSIGN(const ExecutorChoice executor, choose_executor(options.executor, plan));
  std::vector<Selected> choices = {executor.told};
  std::ranges::move(plan.choices, std::back_inserter(choices));
  std::vector<std::string> notes;  // are not told here
  LATHE_ASSIGN(const std::optional<PrefillPlan> prefill, plan_prefill(*device, plan, notes));
  choices.push_back(told_of_prompts(prefill ? &prefill->plan : nullptr));
  if (prefill) std::ranges::copy(prefill->plan.choices, std::back_inserter(choices));
  std::ranges::move(
      told_of_unused(plan.options, with_prompts(plan.distinct_keys(), prefill), choices),
      std::back_inserter(choices));
  return choices;
}

}  // namespace

Result<void> check_tuning(std::string_view text) {
  LATHE_ASSIGN(const TuningOverrides tuning, parse_tuning(text));
  if (!tuning.executor.empty()) LATHE_TRY(executor_of_tuning(tuning.executor));
  return {};
}

Result<void> check_tuning_variable(std::string_view text) {
  Result<void> valid = check_tuning(text);
  if (valid) return {};
  Error error = std::move(valid).error();
  error.message = "LATHE_TUNING: " + error.message;
  return error;
}

std::vector<Selected> told_of_unused(const PlanOptions& options, std::span<const KernelKey> keys,
                                     std::span<const Selected> choices) {
  std::vector<Selected> unused;
  const auto tell = [&](std::string word, const std::string& why) {
    if (!why.empty())
      unused.push_back({"tuning", std::move(word), "changes nothing: " + why, true});
  };
  const Result<TuningOverrides> tuning = parse_tuning(options.tuning);
  if (!tuning) return unused;  // such a text has no plan
  if (tuning->fusion) {
    const std::string name = *tuning->fusion == Fusion::full ? "full" : "none";
    tell("fusion=" + name, why_unused("fusion", name, choices));
  }
  if (!tuning->executor.empty())
    tell("executor=" + tuning->executor, why_unused("executor", tuning->executor, choices));
  if (tuning->blocks && *tuning->blocks != options.blocks)
    tell(fmt::format("blocks={}", *tuning->blocks), "PlanOptions::blocks counts more");
  for (const TuningOverride& word : tuning->kernels)
    tell(word.text(), why_unused(word, options, keys));
  return unused;
}

PlanOptions plan_options(const SessionOptions& options) {
  PlanOptions plan = options.plan;
  if (!plan.measured && options.executor != ExecutorKind::automatic) plan.measured = "";
  return plan;
}

Result<Plan> plan_for(const DeviceImpl& device, const GgufFile& file, PlanOptions options) {
  options.gpu = device.profile();
  LATHE_TRY(take_environment(options));
  if (options.measured) {
    LATHE_TRY(check_tuning(*options.measured));
  } else if (options.fusion == Fusion::automatic) {
    LATHE_ASSIGN(options.measured, measured_words(file, options.gpu));
  }
  LATHE_ASSIGN(Plan plan, build_session_plan(file, options));
  if (plan.options.fusion != Fusion::full || plan.choices.front().set) return plan;
  Result<void> covered = device.kernels().check_covered(plan.distinct_keys());
  if (covered) covered = device.kernels().check_covered(BoundWeights::keys(plan));
  if (covered) return plan;
  LATHE_ASSIGN(plan, unfused_plan(file, std::move(options), covered.error().message));
  plan.notes.push_back(kNotFused + covered.error().message);
  return plan;
}

Result<Plan> plan_for_cpu(const GgufFile& file, PlanOptions options) {
  LATHE_TRY(take_environment(options));
  LATHE_ASSIGN(const TuningOverrides tuning, parse_tuning(options.tuning));
  if (options.fusion != Fusion::automatic || tuning.fusion)
    return build_session_plan(file, options);
  return unfused_plan(file, std::move(options), "oracles read blocks, also those behind tiles");
}

// The faster of mega and graph wherever both ran (docs/performance.md) was mega.
Result<ExecutorChoice> choose_executor(ExecutorKind wanted, const Plan& plan) {
  const bool fused = plan.options.fusion == Fusion::full;
  ExecutorChoice choice{wanted, {"executor", {}, "as it was set", true}};
  if (wanted == ExecutorKind::automatic) {
    LATHE_ASSIGN(const TuningOverrides tuning, tuning_of(plan.options));
    const Result<ExecutorKind> measured = executor_of_tuning(tuning.measured_executor);
    if (!tuning.executor.empty()) {
      LATHE_ASSIGN(choice.kind, executor_of_tuning(tuning.executor));
    } else if (measured && (fused || *measured != ExecutorKind::mega)) {
      choice = {*measured, {"executor", {}, kFastestMeasured, false}};
    } else if (fused) {
      choice = {ExecutorKind::mega,
                {"executor", {}, "the fastest for every model measured", false}};
    } else {
      choice = {ExecutorKind::graph,
                {"executor", {}, "a persistent kernel needs five kernels a layer", false}};
    }
  }
  choice.told.value = executor_name(choice.kind);
  if (choice.kind != ExecutorKind::mega || fused) return choice;
  return Error{Code::not_eligible,
               plan.notes.empty() ? "The mega executor needs a plan with Fusion::full."
                                  : "No persistent kernel: " + plan.notes.back(),
               {}};
}

Selected told_of_cpu() {
  return {"executor", executor_name(ExecutorKind::cpu), "as it was set", true};
}

Selected told_of_prompts(const Plan* prefill) {
  if (!prefill) return {"prompts", "token by token", "there is no plan for many tokens", false};
  return {"prompts", fmt::format("{} tokens at once", prefill->options.chunk),
          "PlanOptions::chunk, at most the context", false};
}

Result<std::vector<Selected>> Session::explain(const GgufFile& file,
                                               const SessionOptions& options) {
  try {
    return choices_of(file, options, Platform{});
  } catch (const std::bad_alloc&) {
    return Error{Code::out_of_memory, "There is no host memory to explain the session.", {}};
  }
}

}  // namespace lathe
