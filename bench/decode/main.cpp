// bench_decode: how fast models decode, as a table.
#include <fmt/format.h>

#include "bench/decode/benchmark.h"
#include "bench/decode/options.h"
#include "bench/decode/report.h"
#include "examples/command_line.h"
#include "examples/progress_line.h"

namespace lathe::bench {

namespace {

constexpr const char* kProgram = "bench_decode";

int run(const Options& options) {
  command_line::ProgressLine progress(!options.quiet);
  bool failed = false;
  Events events;
  events.watch.progress = [&](std::string_view what, std::int64_t done, std::int64_t total) {
    progress.show(what, done, total);
  };
  events.watch.interrupted = command_line::interrupted;
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

  command_line::note_interrupt();
  const std::vector<Row> rows = run_benchmark(options, events);
  progress.clear();
  if (const Result<void> printed = command_line::print(text(rows, options.output)); !printed)
    events.error(printed.error());
  if (command_line::interrupted()) return command_line::kInterrupted;
  return failed ? command_line::kFailure : command_line::kSuccess;
}

}  // namespace

}  // namespace lathe::bench

int main(int argc, char** argv) {
  lathe::command_line::open_standard_streams();
  lathe::bench::Options options;
  if (const auto status = lathe::bench::parse_options(argc, argv, options)) return *status;
  return lathe::bench::run(options);
}
