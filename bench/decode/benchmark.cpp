// Owns the sessions and what one failure leaves of the rest.
#include "bench/decode/benchmark.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "bench/decode/peer.h"

namespace lathe::bench {

namespace {

// Shorter times say more about the counter's steps than about the device.
constexpr double kLeastEnergySeconds = 0.5;

// What a session is opened for.
struct Combination {
  std::string model;
  ExecutorKind executor;
  Format kv;
  int depth;
};

std::int64_t count_parameters(const GgufFile& file) {
  std::int64_t count = 0;
  for (const GgufTensor& tensor : file.tensors()) count += tensor.rows() * tensor.k();
  return count;
}

std::vector<Test> tests_at(const Options& options, int depth) {
  std::vector<Test> tests;
  for (int prompt : options.prompts) {
    if (prompt > 0) tests.push_back({prompt, 0, depth});
  }
  for (int gen : options.gens) {
    if (gen > 0) tests.push_back({0, gen, depth});
  }
  return tests;
}

// As much as the tests need, for attention is planned for the whole context.
int context_for(const Options& options, const std::vector<Test>& tests) {
  if (options.context > 0) return options.context;
  int longest = 0;
  for (const Test& test : tests) longest = std::max(longest, test.depth + test.tokens());
  return longest;
}

std::string subject(const Combination& at) {
  return fmt::format("{}, {} executor, {} KV cache{}", at.model, executor_name(at.executor),
                     row(at.kv).name, at.depth > 0 ? fmt::format(" @ d{}", at.depth) : "");
}

class Benchmark {
 public:
  Benchmark(const Options& options, const Events& events) : options_(options), events_(events) {}

  std::vector<Row> run() {
    for (const std::string& model : options_.models) {
      const Result<std::shared_ptr<const GgufFile>> file = GgufFile::open(model);
      if (!file) {
        events_.error(file.error());
        continue;
      }
      for (ExecutorKind executor : options_.executors)
        for (Format kv : options_.kv)
          for (int depth : options_.depths) attempt(*file, {model, executor, kv, depth});
    }
    return std::move(rows_);
  }

 private:
  void attempt(const std::shared_ptr<const GgufFile>& file, const Combination& at) {
    if (events_.watch.interrupted()) return;
    if (Result<void> measured = measure(file, at); !measured)
      events_.error(std::move(measured).error().with("measuring", subject(at)));
  }

  Result<void> measure(const std::shared_ptr<const GgufFile>& file, const Combination& at) {
    const std::vector<Test> tests = tests_at(options_, at.depth);
    SessionOptions wanted = options_.session;
    wanted.executor = at.executor;
    wanted.plan.kv = at.kv;
    wanted.plan.context = context_for(options_, tests);
    wanted.progress = events_.watch.progress;
    std::optional<double> cold;
    if (options_.cold_build) {
      LATHE_ASSIGN(cold, cold_build(file, wanted));
    }
    LATHE_ASSIGN(const std::unique_ptr<Session> session, Session::open(file, wanted));
    const std::shared_ptr<const SetUp> set_up = describe(*session, *file, at, cold);
    const std::optional<EnergyMeter> meter = open_meter(at.executor);
    Measurement measurement(*session, at.depth, meter ? &*meter : nullptr, events_.watch);
    for (const Test& test : tests)
      LATHE_TRY(run_test(*session, measurement, test, set_up, meter.has_value()));
    return {};
  }

  // Seconds; nothing for an executor without kernels.
  Result<std::optional<double>> cold_build(const std::shared_ptr<const GgufFile>& file,
                                           SessionOptions wanted) {
    wanted.disk_cache = false;
    LATHE_ASSIGN(const std::unique_ptr<Session> session, Session::open(file, wanted));
    const SessionReport& report = session->report();
    if (report.kernels_built == 0) return std::optional<double>();
    return std::optional<double>(report.build_seconds);
  }

  std::shared_ptr<const SetUp> describe(Session& session, const GgufFile& file,
                                        const Combination& at, std::optional<double> cold) {
    auto set_up = std::make_shared<SetUp>();
    set_up->model = at.model;
    set_up->parameters = count_parameters(file);
    set_up->kv = at.kv;
    set_up->context = session.plan().options.context;
    set_up->report = session.report();
    set_up->cold_build_seconds = cold;
    const SessionReport& report = set_up->report;
    for (const std::string& note : report.notes) events_.note(note);
    if (report.kernels_built > 0 && report.kernels_from_cache == 0 && !cold)
      set_up->cold_build_seconds = report.build_seconds;
    if (report.kernels_built == 0 && report.kernels_from_cache > 0)
      set_up->warm_build_seconds = report.build_seconds;
    if (const Result<double> rate = session.read_rate()) {
      set_up->read_rate = *rate;
    } else {
      events_.note("the read rate is not measured: " + rate.error().message);
    }
    return set_up;
  }

  std::optional<EnergyMeter> open_meter(ExecutorKind executor) {
    if (executor == ExecutorKind::cpu) return std::nullopt;
    Result<EnergyMeter> meter = EnergyMeter::open(options_.session.device);
    if (meter) return std::move(meter).value();
    events_.note("energy is not measured: " + meter.error().message);
    return std::nullopt;
  }

  Result<void> run_test(const Session& session, Measurement& measurement, const Test& test,
                        const std::shared_ptr<const SetUp>& set_up, bool metered) {
    Row row;
    row.set_up = set_up;
    row.test = test;
    Samples samples;
    for (int round = 0; round < options_.rounds && !events_.watch.interrupted(); ++round) {
      ask_peer(row, round);
      LATHE_TRY(measurement.run(test, options_.repetitions, samples));
    }
    if (samples.seconds.empty()) return {};  // interrupted before anything was measured
    for (double seconds : samples.seconds) row.rates.push_back(test.tokens() / seconds);
    row.bytes_per_token = bytes_per_token(session.plan(), test);
    const double time = std::accumulate(samples.seconds.begin(), samples.seconds.end(), 0.0);
    if (metered && time >= kLeastEnergySeconds) {
      row.watts = samples.joules / time;
      row.joules_per_token =
          samples.joules / (test.tokens() * static_cast<double>(samples.seconds.size()));
    }
    rows_.push_back(std::move(row));
    return {};
  }

  // A peer that failed once is left out of a test: half of its rounds would be no comparison.
  void ask_peer(Row& row, int round) {
    if (options_.peer.empty() || !row.peer_error.empty()) return;
    const std::string command =
        peer_command(options_.peer, row.set_up->model, row.test, options_.repetitions);
    const std::string what = "waiting for the peer on " + row.test.name() + ", round";
    Result<std::vector<double>> rates = run_peer(
        command, row.test, [&] { events_.watch.progress(what, round + 1, options_.rounds); });
    if (rates) {
      row.peer_rates.insert(row.peer_rates.end(), rates->begin(), rates->end());
      return;
    }
    row.peer_rates.clear();
    row.peer_error = rates.error().message;
    // Ctrl-C ends the peer too, and that is no failure.
    if (!events_.watch.interrupted()) events_.error(rates.error());
  }

  const Options& options_;
  const Events& events_;
  std::vector<Row> rows_;
};

}  // namespace

std::vector<Row> run_benchmark(const Options& options, const Events& events) {
  return Benchmark(options, events).run();
}

}  // namespace lathe::bench
