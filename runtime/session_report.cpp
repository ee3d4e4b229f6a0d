// Owns what the reports of sessions and batches have in common.
#include "runtime/session_report.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <iterator>

#include "codegen/kernels/matvec.h"
#include "runtime/session_choices.h"

namespace lathe {
namespace {

// "132 blocks of 8 warps, 4 tiles ahead, attention in 16 splits", as far as the plan has them.
std::string tuning_text(const Plan& plan) {
  std::string text;
  const auto add = [&](const std::string& part) {
    if (text.find(part) == std::string::npos) text += (text.empty() ? "" : ", ") + part;
  };
  if (plan.options.fusion != Fusion::full) add("a kernel for each operation");
  for (const Step& step : plan.steps) {
    const KernelKey& key = step.key;
    if (key.type == KernelType::matvec)
      add(fmt::format("{} blocks of {} warps, {} tiles ahead", key.blocks, key.warps,
                      key.stages * tiles_together(key)));
    if (key.type == KernelType::attend || key.type == KernelType::attention)
      add(fmt::format("attention in {} split{}", key.splits, key.splits == 1 ? "" : "s"));
  }
  return text;
}

std::uint64_t plan_digest(const Plan& plan) {
  std::uint64_t digest = 0;
  const auto mix = [&](const void* data, std::size_t bytes) {
    digest = XXH3_64bits_withSeed(data, bytes, digest);
  };
  for (const Step& step : plan.steps) {
    const std::string key = step.key.text();
    mix(key.data(), key.size());
    for (const Operand& operand : step.operands) {
      const std::int64_t words[] = {std::int64_t(operand.place), operand.index, operand.offset,
                                    operand.bytes};
      mix(words, sizeof words);
    }
  }
  // Where each layer's cache begins, and where the kernel that ends a token stops.
  const std::int64_t sizes[] = {plan.kv_bytes_per_layer(), plan.options.context};
  mix(sizes, sizeof sizes);
  return digest;
}

}  // namespace

void report_sizes(const Plan& plan, SessionReport& report) {
  for (const WeightSlot& slot : plan.weights) report.weight_bytes += slot.bytes;
  for (const Table& table : plan.tables)
    report.weight_bytes += std::int64_t(table.values.size() * sizeof(float));
  report.kv_bytes = 2 * plan.spec.layers * plan.kv_bytes_per_layer();
  report.kv_pages = plan.options.kv_pages;
  report.scratch_bytes = plan.arena_bytes + plan.page_table_bytes();
}

void report_pass(const Plan& plan, SessionReport& report) {
  report.context = plan.options.context;
  report.tuning = tuning_text(plan);
  report.graph_key = fmt::format("{:016x}", plan_digest(plan));
}

void report_traffic(const Plan& plan, SessionReport& report) {
  report.bytes_to_device =
      sizeof(ControlBlock::token) + sizeof(ControlBlock::position) + plan.input.bytes;
  report.bytes_to_host =
      plan.logits.bytes > 0 ? std::int64_t(sizeof(ControlBlock::sampled)) : plan.hidden.bytes;
}

void report_build(const DeviceImpl& device, const KernelCounts& before, const KernelsAhead& ahead,
                  SessionReport& report) {
  const KernelCounts after = device.counts();
  report.build_seconds = ahead.build_seconds();
  report.build_wait_seconds = ahead.wait_seconds();
  report.kernels_built = after.built - before.built;
  report.kernels_from_cache = after.from_disk - before.from_disk;
}

void report_persistent(const ProgramBuild& build, SessionReport& report) {
  report.build_seconds = std::max(report.build_seconds, build.build_seconds());
  // Whoever waits is told a little later.
  report.build_wait_seconds =
      std::min(report.build_wait_seconds + build.wait_seconds(), report.build_seconds);
}

Result<void> report_kernels(DeviceImpl& device, std::span<const KernelKey> keys,
                            SessionReport& report) {
  report.device = device.description();
  report.assembler = device.assembler();
  LATHE_ASSIGN(report.routes, device.routes_of(keys));
  return {};
}

void report_choices(const std::optional<PrefillPlan>& prefill, SessionReport& report) {
  report.choices.push_back(told_of_prompts(prefill ? &prefill->plan : nullptr));
  if (prefill) std::ranges::copy(prefill->plan.choices, std::back_inserter(report.choices));
}

void report_unused(const PlanOptions& options, std::span<const KernelKey> keys,
                   SessionReport& report) {
  for (Selected& word : told_of_unused(options, keys, report.choices)) {
    report.notes.push_back(fmt::format("the tuning '{}' {}", word.value, word.reason));
    report.choices.push_back(std::move(word));
  }
}

void report_notes(const DeviceImpl& device, const Plan& plan, SessionReport& report) {
  report.cache = device.cache_counts();
  std::vector<std::string> notes = device.notes();
  notes.insert(notes.end(), plan.notes.begin(), plan.notes.end());
  report.notes.insert(report.notes.begin(), notes.begin(), notes.end());
}

void tell_opening(const DeviceImpl& device, const SessionReport& report) {
  const Log& log = device.log();
  if (!log) return;
  log.write(LogLevel::info, LogLine("session", "opened")
                                .field("executor", report.executor)
                                .field("build_ms", 1e3 * report.build_seconds)
                                .field("build_wait_ms", 1e3 * report.build_wait_seconds)
                                .field("upload_ms", 1e3 * report.upload_seconds));
}

}  // namespace lathe
