// bench_batch: how fast several sequences decode together, and one with drafts, as a table.
#include <fmt/format.h>

#include "bench/batch/measure.h"
#include "bench/common/table.h"
#include "examples/command_line.h"
#include "examples/progress_line.h"

namespace lathe::bench::batch {

namespace {

Table table_of(const std::vector<Row>& rows) {
  Table table{{{"", false},
               {"tokens/s", true},
               {"x session", true},
               {"ms/step", true},
               {"x session", true},
               {"accepted %", true}},
              {}};
  const Row& base = rows.front();
  for (const Row& row : rows)
    table.rows.push_back({row.name, fmt::format("{:.1f}", row.tokens_per_second),
                          fmt::format("{:.2f}", row.tokens_per_second / base.tokens_per_second),
                          fmt::format("{:.3f}", row.step_seconds * 1e3),
                          fmt::format("{:.2f}", row.step_seconds / base.step_seconds),
                          row.accepted < 0 ? "" : fmt::format("{:.0f}", row.accepted * 100)});
  return table;
}

Result<void> run(Options options) {
  command_line::ProgressLine progress(!options.quiet);
  options.batch.session.progress = [&](std::string_view what, std::int64_t done,
                                       std::int64_t total) { progress.show(what, done, total); };
  LATHE_ASSIGN(const std::shared_ptr<const GgufFile> file, GgufFile::open(options.model));
  std::vector<Row> rows;
  LATHE_ASSIGN(rows.emplace_back(), measure_session(file, options));
  LATHE_ASSIGN(const std::unique_ptr<Batch> batch, Batch::open(file, options.batch));
  const auto add = [&](Result<Row> row) -> Result<void> {
    if (!row) return row.error();
    rows.push_back(std::move(*row));
    progress.show("measuring " + rows.back().name, 1, 1);
    return {};
  };
  for (const int sequences : options.sequences)
    LATHE_TRY(add(measure_batch(*batch, sequences, options)));
  for (const int drafts : options.drafts) {
    LATHE_TRY(add(measure_verification(*batch, drafts + 1, options)));
    LATHE_TRY(add(measure_drafts(*batch, drafts, options)));
  }
  progress.clear();
  if (!options.quiet)
    for (const std::string& note : batch->report().notes)
      command_line::say(fmt::format("bench_batch: {}\n", note));
  const Table table = table_of(rows);
  return command_line::print(options.csv ? table.csv() : table.markdown());
}

}  // namespace

}  // namespace lathe::bench::batch

int main(int argc, char** argv) {
  using namespace lathe;
  command_line::open_standard_streams();
  bench::batch::Options options;
  if (const auto status = bench::batch::parse_options(argc, argv, options)) return *status;
  const Result<void> status = bench::batch::run(options);
  if (status) return command_line::kSuccess;
  command_line::print_error("bench_batch", status.error());
  return command_line::kFailure;
}
