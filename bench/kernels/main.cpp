// bench_kernels: how fast single kernels are, as a table.
#include <fmt/format.h>

#include "bench/kernels/benchmark.h"
#include "bench/kernels/comparison.h"
#include "bench/kernels/options.h"
#include "bench/kernels/report.h"
#include "examples/command_line.h"
#include "examples/progress_line.h"

namespace lathe::bench::kernels {

namespace {

constexpr const char* kProgram = "bench_kernels";

int fail(const Error& error) {
  command_line::print_error(kProgram, error);
  return error.code == Code::no_driver ? command_line::kUsage : command_line::kFailure;
}

Result<void> print_list(const Options& options, const Events& events) {
  LATHE_ASSIGN(const std::vector<Subject> subjects, listed_subjects(options, events));
  std::string text;
  for (const Subject& subject : subjects)
    text += fmt::format("{:<70} {}\n", subject.key.text(), subject.uses);
  return command_line::print(text);
}

// The exit code: whether a kernel has become slower.
Result<int> tell(const Report& report, const Options& options) {
  LATHE_TRY(command_line::print(options.csv ? csv(report) : markdown(report)));
  if (!options.json.empty()) LATHE_TRY(write_report(options.json, report));
  if (options.compare.empty()) return command_line::kSuccess;
  LATHE_ASSIGN(const Report before, read_report(options.compare));
  const ReportComparison comparison = compare(before, report);
  LATHE_TRY(command_line::print("\n" + comparison.markdown(options.tolerance)));
  return comparison.slower(options.tolerance) > 0 ? command_line::kFailure : command_line::kSuccess;
}

int run(const Options& options) {
  command_line::ProgressLine progress(!options.quiet);
  bool failed = false;
  Events events;
  events.progress = [&](std::string_view what, std::int64_t done, std::int64_t total) {
    progress.show(what, done, total);
  };
  events.interrupted = command_line::interrupted;
  events.note = [&](const std::string& note) {
    if (options.quiet) return;
    progress.clear();
    command_line::say(fmt::format("{}: {}\n", kProgram, note));
  };
  events.error = [&](const Error& error) {
    failed = true;
    progress.clear();
    command_line::print_error(kProgram, error);
  };
  if (options.list) {
    const Result<void> printed = print_list(options, events);
    return printed ? command_line::kSuccess : fail(printed.error());
  }
  command_line::note_interrupt();
  const Result<Report> report =
      options.from.empty() ? run_benchmark(options, events) : read_report(options.from);
  progress.clear();
  if (!report) return fail(report.error());
  const Result<int> told = tell(*report, options);
  if (!told) return fail(told.error());
  if (command_line::interrupted()) return command_line::kInterrupted;
  return failed ? command_line::kFailure : *told;
}

}  // namespace

}  // namespace lathe::bench::kernels

int main(int argc, char** argv) {
  lathe::command_line::open_standard_streams();
  lathe::bench::kernels::Options options;
  if (const auto status = lathe::bench::kernels::parse_options(argc, argv, options)) return *status;
  return lathe::bench::kernels::run(options);
}
