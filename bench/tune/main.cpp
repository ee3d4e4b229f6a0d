// bench_tune: with which tuning models decode fastest on this GPU, as the table that sessions read.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "bench/tune/measure.h"
#include "examples/command_line.h"
#include "examples/progress_line.h"

namespace lathe::bench::tune {

namespace {

using Tunings = std::vector<MeasuredTuning>;

// Of the file, empty where there is none.
Result<Tunings> read_table(const std::string& path) {
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown) && !unknown) return Tunings();
  Result<Tunings> table = read_measured_tunings(path);
  if (table) return table;
  Error error = std::move(table).error();
  error.message = fmt::format("{}: {}", path, error.message);
  return error;
}

Result<void> write_table(const std::string& path, const Tunings& table) {
  const std::string part = path + ".part";
  std::ofstream file(part);
  file << measured_tunings_text(table) << std::flush;
  if (file && std::rename(part.c_str(), path.c_str()) == 0) return {};
  return Error{Code::io, fmt::format("{} cannot be written", path), {}};
}

class Tuner {
 public:
  explicit Tuner(const Options& options) : options_(options), progress_(!options.quiet) {
    watch_.progress = [this](std::string_view what, std::int64_t done, std::int64_t total) {
      progress_.show(what, done, total);
    };
    watch_.interrupted = command_line::interrupted;
  }

  Result<void> run() {
    Tunings table;
    if (!options_.table.empty()) {
      LATHE_ASSIGN(table, read_table(options_.table));
    }
    if (!environment_value(Variable::tuning).value_or("").empty())
      return Error{Code::invalid_argument,
                   "LATHE_TUNING is set: what is measured with it is not the rules",
                   {}};
    // All sessions share its kernels.
    LATHE_ASSIGN(options_.session.kernels, Device::open(device_options(options_.session)));
    Result<void> tuned;
    for (const std::string& model : options_.models) {
      tuned = tune(model, table);
      if (!tuned) break;
      if (!options_.table.empty()) LATHE_TRY(write_table(options_.table, table));
    }
    progress_.clear();
    // What was measured is told, whatever became of the rest.
    if (options_.table.empty()) LATHE_TRY(command_line::print(measured_tunings_text(table)));
    return tuned;
  }

 private:
  Result<void> tune(const std::string& model, Tunings& table) {
    LATHE_ASSIGN(const std::shared_ptr<const GgufFile> file, GgufFile::open(model));
    LATHE_ASSIGN(const ModelSpec spec, read_model_spec(*file));
    const TuningClass of = tuning_class(*file, spec, options_.session.kernels->profile());
    say(model);
    const std::vector<Axis> tried = axes(options_.session.kernels->profile().multiprocessors);
    const Measure measured = [&](const std::string& words, const std::string& beside) {
      return measure(file, options_, watch_, words, beside);
    };
    const auto told = [&](const Trial& trial, double by_rules) { tell(trial, by_rules); };
    LATHE_ASSIGN(const Found found, search(tried, measured, told));
    std::erase_if(table, [&](const MeasuredTuning& row) { return row.of == of; });
    if (found.words.empty())
      say("  nothing is faster than the rules");
    else
      table.push_back({of, found.words, found.rate, found.by_rules});
    return {};
  }

  void tell(const Trial& trial, double by_rules) {
    say(fmt::format("  {:<44} {:<6} {:9.2f} tokens/s, {:.3f} of the rules'",
                    trial.words.empty() ? "by the rules" : trial.words, trial.executor, trial.rate,
                    trial.rate / by_rules));
  }

  void say(const std::string& line) {
    if (options_.quiet) return;
    progress_.clear();
    command_line::say(line + "\n");
  }

  Options options_;
  command_line::ProgressLine progress_;
  Watch watch_;
};

}  // namespace

}  // namespace lathe::bench::tune

int main(int argc, char** argv) {
  using namespace lathe;
  command_line::open_standard_streams();
  bench::tune::Options options;
  if (const auto status = bench::tune::parse_options(argc, argv, options)) return *status;
  command_line::note_interrupt();
  const Result<void> status = bench::tune::Tuner(options).run();
  if (status) return command_line::kSuccess;
  if (command_line::interrupted()) return command_line::kInterrupted;
  command_line::print_error("bench_tune", status.error());
  return command_line::kFailure;
}
