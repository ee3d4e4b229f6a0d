// Owns what a session chooses by its device: which plan, which executor, and how that is told.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "lathe/runtime/session.h"
#include "runtime/device_impl.h"

namespace lathe {

// invalid_argument: why this cannot be PlanOptions::tuning.
Result<void> check_tuning(std::string_view text);
// The same of LATHE_TUNING, which the sentence names.
Result<void> check_tuning_variable(std::string_view text);

// Those of a session: the table of measured tunings is of sessions whose executor is chosen.
PlanOptions plan_options(const SessionOptions& options);

// The plan for this device, set as LATHE_TUNING says where the options set nothing, then as the
// table of measured tunings does where the plan is left to be chosen too.
// Fusion::automatic takes the fused one where the device can run it and the device's routes make
// every kernel of it, else the other, with a note that says why. Builds and loads nothing.
Result<Plan> plan_for(const DeviceImpl& device, const GgufFile& file, PlanOptions options);
// The same for the cpu executor.
Result<Plan> plan_for_cpu(const GgufFile& file, PlanOptions options);

struct ExecutorChoice {
  ExecutorKind kind = ExecutorKind::graph;
  Selected told;

  bool may_fall_back() const { return !told.set; }  // to graph, where a kernel cannot be had
};
// Which executor runs the plan. not_eligible: why the one that was named cannot.
Result<ExecutorChoice> choose_executor(ExecutorKind wanted, const Plan& plan);

// Of each word of a tuning that nothing took, why: a name that is known, and that plans of these
// options, of which all kernels have these keys, do not have or do not leave to be chosen.
std::vector<Selected> told_of_unused(const PlanOptions& options, std::span<const KernelKey> keys,
                                     std::span<const Selected> choices);

// Of a session that was opened on the CPU.
Selected told_of_cpu();
// How prompts are read: `prefill` null, token by token.
Selected told_of_prompts(const Plan* prefill);

}  // namespace lathe
