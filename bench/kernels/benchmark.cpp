// Owns the devices, and what one failure leaves of the rest.
#include "bench/kernels/benchmark.h"

#include <algorithm>
#include <memory>
#include <set>

namespace lathe::bench::kernels {

namespace {

// Where nothing is known of a device.
constexpr const char* kAssumedTarget = "sm_90a";
constexpr int kAssumedMultiprocessors = 132;

bool covered(const KernelKey& key, const std::vector<Route>& routes, const Target& target) {
  return target_covers(key, target) &&
         std::ranges::any_of(routes, [&](Route route) { return bool(route_covers(key, route)); });
}

Result<std::vector<Subject>> chosen_subjects(const Options& options, const Target& target,
                                             int multiprocessors, const Events& events) {
  if (!options.keys.empty()) return named_subjects(options.keys);
  return subjects_of(options.selection, target, multiprocessors, events.note);
}

int position_of(const verification::KernelCase& kernel_case) {
  return kernel_case.batch.empty() ? kernel_case.position : kernel_case.batch[0].position;
}

Row row_of(const Subject& subject, const verification::KernelCase& kernel_case,
           const KernelInfo& info, std::vector<double> seconds) {
  const Cost cost = cost_of(kernel_case);
  Row row;
  row.key = subject.key.text();
  row.route = route_name(info.route);
  row.uses = subject.uses;
  row.position = position_of(kernel_case);
  row.seconds = std::move(seconds);
  row.bytes = cost.bytes_read + cost.bytes_written;
  row.operations = cost.operations;
  row.multiplies = subject.key.type == KernelType::matmul ||
                   subject.key.type == KernelType::attend_tokens ||
                   subject.key.type == KernelType::gemm;
  row.registers = info.registers;
  row.spill_bytes = info.local_bytes;
  row.static_shared_bytes = info.shared_bytes;
  row.dynamic_shared_bytes = info.geometry.shared_bytes;
  row.cubin_bytes = info.cubin_bytes;
  row.emit_ms = info.emit_ms;
  row.assemble_ms = info.assemble_ms;
  return row;
}

// One kernel at the positions that make a difference to it.
Result<void> measure_subject(Workbench& bench, const Subject& subject, const Options& options,
                             Report& report) {
  LATHE_ASSIGN(const Kernel* kernel, bench.device().kernel(subject.key));
  std::set<int> positions;
  for (int depth : options.depths) {
    const verification::KernelCase kernel_case = verification::case_at(subject.key, depth);
    if (!positions.insert(position_of(kernel_case)).second) continue;
    Result<std::vector<double>> seconds = measure(bench, *kernel, kernel_case, options.repetitions);
    bench.clear();
    LATHE_TRY(seconds);
    report.rows.push_back(
        row_of(subject, kernel_case, bench.device().info(*kernel), std::move(seconds).value()));
  }
  return {};
}

}  // namespace

void measure_all(Workbench& bench, const std::vector<Subject>& subjects, const Options& options,
                 const std::vector<Route>& routes, const Events& events, Report& report) {
  Device& device = bench.device();
  std::vector<Subject> measured;
  std::vector<KernelKey> keys;
  for (const Subject& subject : subjects) {
    if (!covered(subject.key, routes, device.target())) continue;
    measured.push_back(subject);
    keys.push_back(subject.key);
  }
  // What cannot be made is told below, kernel by kernel.
  static_cast<void>(device.prepare(keys, events.progress));
  for (std::size_t i = 0; i < measured.size() && !events.interrupted(); ++i) {
    events.progress("measuring kernels", static_cast<std::int64_t>(i),
                    static_cast<std::int64_t>(measured.size()));
    if (const Result<void> done = measure_subject(bench, measured[i], options, report); !done)
      events.error(Error(done.error()).with("measuring", measured[i].key.text()));
  }
  for (const std::string& note : device.notes()) events.note(note);
}

Result<Report> run_benchmark(const Options& options, const Events& events) {
  Report report;
  std::vector<Subject> subjects;
  for (const std::vector<Route>& routes : options.routes) {
    DeviceOptions wanted = options.device;
    wanted.routes = routes;
    LATHE_ASSIGN(std::shared_ptr<Device> device, Device::open(wanted));
    LATHE_ASSIGN(const std::unique_ptr<Workbench> bench, Workbench::open(std::move(device)));
    if (subjects.empty()) {
      report.device = bench->device().description();
      report.cache_bytes = bench->cache_bytes();
      LATHE_ASSIGN(report.read_rate, bench->read_rate());
      LATHE_ASSIGN(subjects, chosen_subjects(options, bench->device().target(),
                                             bench->multiprocessors(), events));
    }
    measure_all(*bench, subjects, options, routes, events, report);
    if (events.interrupted()) break;
  }
  return report;
}

Result<std::vector<Subject>> listed_subjects(const Options& options, const Events& events) {
  if (Result<std::shared_ptr<Device>> device = Device::open(options.device)) {
    if (const auto bench = Workbench::open(std::move(device).value()))
      return chosen_subjects(options, (*bench)->device().target(), (*bench)->multiprocessors(),
                             events);
  }
  LATHE_ASSIGN(const Target target, parse_target(kAssumedTarget));
  return chosen_subjects(options, target, kAssumedMultiprocessors, events);
}

}  // namespace lathe::bench::kernels
