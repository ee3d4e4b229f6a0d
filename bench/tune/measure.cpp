// Owns the session of a trial.
#include "bench/tune/measure.h"

#include <algorithm>

#include "bench/common/statistics.h"

namespace lathe::bench::tune {

namespace {

bool same_choices(const std::vector<Selected>& one, const std::vector<Selected>& other) {
  return std::ranges::equal(one, other, [](const Selected& a, const Selected& b) {
    return a.what == b.what && a.value == b.value;
  });
}

SessionOptions with(SessionOptions session, const std::string& words) {
  session.plan.measured = words;
  return session;
}

// Whether a session with these words is another than the one beside it.
Result<bool> is_other(const GgufFile& file, const SessionOptions& session, const std::string& words,
                      const std::string& beside) {
  LATHE_ASSIGN(const std::vector<Selected> before, Session::explain(file, with(session, beside)));
  LATHE_ASSIGN(const std::vector<Selected> after, Session::explain(file, with(session, words)));
  return !same_choices(before, after);
}

}  // namespace

Result<std::optional<Trial>> measure(const std::shared_ptr<const GgufFile>& file,
                                     const Options& options, const Watch& watch,
                                     const std::string& words, const std::string& beside) {
  if (watch.interrupted()) return Error{Code::cancelled, "interrupted", {}};
  if (words != beside) {
    LATHE_ASSIGN(const bool other, is_other(*file, options.session, words, beside));
    if (!other) return std::optional<Trial>();
  }
  SessionOptions wanted = with(options.session, words);
  wanted.progress = watch.progress;
  wanted.cancelled = watch.interrupted;
  LATHE_ASSIGN(const std::unique_ptr<Session> session, Session::open(file, wanted));
  Measurement measurement(*session, options.depth, nullptr, watch);
  const Test test = {0, options.gen, options.depth};
  Samples samples;
  LATHE_TRY(measurement.run(test, options.repetitions, samples));
  if (samples.seconds.size() < static_cast<std::size_t>(options.repetitions))
    return Error{Code::cancelled, "interrupted", {}};
  std::vector<double> rates;
  for (const double seconds : samples.seconds) rates.push_back(test.tokens() / seconds);
  const Statistics told = statistics(rates);
  return std::optional<Trial>({words, session->report().executor, told.median, told.min});
}

}  // namespace lathe::bench::tune
