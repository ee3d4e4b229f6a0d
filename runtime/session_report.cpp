// Owns what the reports of sessions and batches have in common.
#include "runtime/session_report.h"

namespace lathe {

void report_sizes(const Plan& plan, SessionReport& report) {
  for (const WeightSlot& slot : plan.weights) report.weight_bytes += slot.bytes;
  for (const Table& table : plan.tables)
    report.weight_bytes += std::int64_t(table.values.size() * sizeof(float));
  report.kv_bytes = 2 * plan.spec.layers * plan.kv_bytes_per_layer();
  report.scratch_bytes = plan.arena_bytes;
}

void report_build(const DeviceImpl& device, const KernelCounts& before, double seconds,
                  SessionReport& report) {
  const KernelCounts after = device.counts();
  report.build_seconds = seconds;
  report.kernels_built = after.built - before.built;
  report.kernels_from_cache = after.from_disk - before.from_disk;
}

void report_notes(const DeviceImpl& device, const Plan& plan, SessionReport& report) {
  report.cache = device.cache_counts();
  std::vector<std::string> notes = device.notes();
  notes.insert(notes.end(), plan.notes.begin(), plan.notes.end());
  report.notes.insert(report.notes.begin(), notes.begin(), notes.end());
}

}  // namespace lathe
