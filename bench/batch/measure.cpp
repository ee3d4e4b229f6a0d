// Owns the measurements of a batch.
#include "bench/batch/measure.h"

#include <fmt/format.h>

#include "bench/common/clock.h"
#include "bench/common/statistics.h"

namespace lathe::bench::batch {

namespace {

// The same few tokens again and again, so that look-ups find what follows them.
std::vector<std::int32_t> prompt_of(int length, int vocab, int sequence) {
  constexpr int kPeriod = 16;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(length));
  for (int i = 0; i < length; ++i)
    tokens[static_cast<std::size_t>(i)] = (i % kPeriod * 7919 + sequence * 104729 + 11) % vocab;
  return tokens;
}

// Sequences that leave when they are done with.
class Sequences {
 public:
  static Result<Sequences> join(Batch& batch, int count, int depth) {
    Sequences out(batch);
    for (int i = 0; i < count; ++i) {
      LATHE_ASSIGN(const int sequence, batch.join());
      out.all_.push_back(sequence);
      LATHE_TRY(batch.feed(sequence, prompt_of(depth, batch.plan().spec.vocab, i)));
    }
    return out;
  }
  Sequences(Sequences&& other) noexcept : batch_(other.batch_), all_(std::move(other.all_)) {
    other.all_.clear();
  }
  ~Sequences() {
    for (const int sequence : all_) static_cast<void>(batch_.leave(sequence));
  }
  const std::vector<int>& all() const { return all_; }

 private:
  explicit Sequences(Batch& batch) : batch_(batch) {}
  Batch& batch_;
  std::vector<int> all_;
};

// Runs `once`, which says how long it took, and forgets the first time.
template <typename Once>
Result<double> median_of(int repetitions, Once once) {
  std::vector<double> seconds;
  for (int i = 0; i <= repetitions; ++i) {
    LATHE_ASSIGN(const double elapsed, once());
    if (i > 0) seconds.push_back(elapsed);
  }
  return statistics(seconds).median;
}

}  // namespace

Result<Row> measure_session(const std::shared_ptr<const GgufFile>& file, const Options& options) {
  LATHE_ASSIGN(const std::unique_ptr<Session> session, Session::open(file, options.batch.session));
  const std::vector<std::int32_t> prompt = prompt_of(options.depth, session->plan().spec.vocab, 0);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(options.gen));
  LATHE_ASSIGN(const double seconds, median_of(options.repetitions, [&]() -> Result<double> {
                 LATHE_TRY(session->rollback(0));
                 LATHE_TRY(session->feed(prompt));
                 LATHE_ASSIGN(const std::int32_t first, session->sampled());
                 const auto start = Clock::now();
                 LATHE_TRY(session->generate(first, tokens));
                 return seconds_since(start);
               }));
  return Row{"session, " + session->report().executor, options.gen / seconds,
             seconds / options.gen};
}

Result<Row> measure_batch(Batch& batch, int sequences, const Options& options) {
  LATHE_ASSIGN(const Sequences joined, Sequences::join(batch, sequences, options.depth));
  std::vector<BatchRow> rows;
  LATHE_ASSIGN(const double seconds, median_of(options.repetitions, [&]() -> Result<double> {
                 rows.clear();
                 for (const int sequence : joined.all()) {
                   LATHE_TRY(batch.rollback(sequence, options.depth));
                   rows.push_back({sequence, 1});
                 }
                 const auto start = Clock::now();
                 for (int i = 0; i < options.gen; ++i) {
                   LATHE_ASSIGN(const auto chosen, batch.step(rows));
                   for (std::size_t r = 0; r < rows.size(); ++r)
                     rows[r].token = std::max(chosen[r], 0);
                 }
                 return seconds_since(start);
               }));
  return Row{fmt::format("batch of {}", sequences), sequences * options.gen / seconds,
             seconds / options.gen};
}

Result<Row> measure_verification(Batch& batch, int rows, const Options& options) {
  LATHE_ASSIGN(const Sequences joined, Sequences::join(batch, 1, options.depth));
  const int sequence = joined.all().front();
  const std::vector<BatchRow> drafts(static_cast<std::size_t>(rows), BatchRow{sequence, 1});
  LATHE_ASSIGN(const double seconds, median_of(options.repetitions, [&]() -> Result<double> {
                 const auto start = Clock::now();
                 for (int i = 0; i < options.gen; ++i) {
                   LATHE_TRY(batch.step(drafts));
                   LATHE_TRY(batch.rollback(sequence, options.depth));
                 }
                 return seconds_since(start);
               }));
  return Row{fmt::format("verify {}", rows), rows * options.gen / seconds, seconds / options.gen};
}

Result<Row> measure_drafts(Batch& batch, int drafts, const Options& options) {
  LATHE_ASSIGN(const Sequences joined, Sequences::join(batch, 1, options.depth));
  const int sequence = joined.all().front();
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(options.gen));
  DraftCounts counts;
  LATHE_ASSIGN(const double seconds, median_of(options.repetitions, [&]() -> Result<double> {
                 LATHE_TRY(batch.rollback(sequence, options.depth));
                 const auto start = Clock::now();
                 LATHE_ASSIGN(counts, generate_with_drafts(batch, sequence, 1, tokens,
                                                           LookupDrafts{}, drafts));
                 return seconds_since(start);
               }));
  Row row{fmt::format("lookup of {}", drafts), options.gen / seconds, seconds / counts.steps};
  row.accepted = counts.drafted > 0 ? double(counts.accepted) / counts.drafted : 0;
  return row;
}

}  // namespace lathe::bench::batch
