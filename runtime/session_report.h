// Owns what the reports of sessions and batches have in common.
#pragma once

#include <optional>
#include <span>

#include "lathe/runtime/session.h"
#include "runtime/device_impl.h"
#include "runtime/kernels_ahead.h"
#include "runtime/program_build.h"

namespace lathe {

// Bytes of weights with their tables, of the KV cache and of the arena.
void report_sizes(const Plan& plan, SessionReport& report);
// What a pass is made of: context, tuning, the key of its graph.
void report_pass(const Plan& plan, SessionReport& report);
// What a token of a session on a GPU brings to the device and back.
void report_traffic(const Plan& plan, SessionReport& report);
// What has been built since `before`, and how long it took.
void report_build(const DeviceImpl& device, const KernelCounts& before, const KernelsAhead& ahead,
                  SessionReport& report);
// The build of the persistent kernel, which began with that of the others and was waited for since.
void report_persistent(const ProgramBuild& build, SessionReport& report);
// The device, and how these kernels of its were made.
Result<void> report_kernels(DeviceImpl& device, std::span<const KernelKey> keys,
                            SessionReport& report);
// How prompts are read, and what was chosen for that.
void report_choices(const std::optional<PrefillPlan>& prefill, SessionReport& report);
// Words of the tuning that changed nothing, among the choices and the notes. `keys`: of all
// kernels.
void report_unused(const PlanOptions& options, std::span<const KernelKey> keys,
                   SessionReport& report);
// At the end of opening: the device's cache and notes, and the plan's notes, before those there
// are.
void report_notes(const DeviceImpl& device, const Plan& plan, SessionReport& report);
// A line of the log: what the opening took, and what it waited for.
void tell_opening(const DeviceImpl& device, const SessionReport& report);

}  // namespace lathe
