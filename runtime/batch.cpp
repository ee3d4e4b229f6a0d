// Owns a batch on a GPU: its sequences, and the launches of a step for few or many rows.
#include "lathe/runtime/batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <set>

#include "codegen/stopwatch.h"
#include "runtime/batch_sequence.h"
#include "runtime/eligibility.h"
#include "runtime/executor.h"
#include "runtime/prefill.h"
#include "runtime/read_rate.h"
#include "runtime/session_base.h"
#include "runtime/session_report.h"
#include "runtime/trace_range.h"
#include "runtime/weights.h"

namespace lathe {
namespace {

// Steps of fewer rows than the most have kernels for so many.
constexpr int kFewRows[] = {8, 16};
// Shorter pieces of a prompt are taken as rows of a step.
constexpr std::size_t kFewTokens = 32;

// The launches for at most plan.shape.rows rows.
struct Rows {
  BatchPlan plan;
  std::optional<BoundPlan> bound;
  std::unique_ptr<Executor> executor;
};

class CudaBatch final : public Batch {
 public:
  CudaBatch(std::shared_ptr<const GgufFile> file, Plan decoding, std::shared_ptr<DeviceImpl> device,
            int rows)
      : file_(std::move(file)),
        decoding_(std::move(decoding)),
        device_(std::move(device)),
        most_rows_(rows),
        sequences_(decoding_.options, decoding_.spec.vocab) {}

  ~CudaBatch() override {
    // What the batch owns must not go while the stream still works with it.
    const auto scope = context().enter();
    if (scope && stream_) driver().cuStreamSynchronize(stream_);
  }

  Result<void> prepare(const SessionOptions& options);

  const Plan& plan() const override { return rows_.back().plan.plan; }
  const SessionReport& report() const override { return report_; }
  int rows() const override { return most_rows_; }

  Result<int> join(const Sampling& sampling) override { return sequences_.join(sampling); }

  Result<void> leave(int sequence) override {
    LATHE_ASSIGN(BatchSequence * of, sequences_.find(sequence));
    of->leave();
    return {};
  }

  Result<int> length(int sequence) const override {
    LATHE_ASSIGN(const BatchSequence* of, sequences_.find(sequence));
    return int(of->tokens().size());
  }

  Result<std::span<const std::int32_t>> tokens(int sequence) const override {
    LATHE_ASSIGN(const BatchSequence* of, sequences_.find(sequence));
    return of->tokens();
  }

  Result<void> feed(int sequence, std::span<const std::int32_t> tokens) override {
    LATHE_ASSIGN(BatchSequence * of, sequences_.find(sequence));
    for (const std::int32_t token : tokens) LATHE_TRY(sequences_.check_token(sequence, token));
    LATHE_TRY(sequences_.check_room(sequence, std::int64_t(tokens.size())));
    const TraceRange range("feed sequence");
    LATHE_ASSIGN(ContextScope scope, context().enter());
    LATHE_TRY(check_stream_not_capturing(driver(), stream_));
    if (prefill_ && tokens.size() >= kFewTokens) {
      LATHE_TRY(prefill_->read(tokens, int(of->tokens().size()), first_row(sequence)));
      of->append(tokens);
      return {};
    }
    logits_rows_ = 0;
    while (!tokens.empty()) {
      const auto part = tokens.first(std::min(tokens.size(), std::size_t(most_rows_)));
      fed_.clear();
      for (const std::int32_t token : part) fed_.push_back({sequence, token});
      LATHE_TRY(launch(fed_));
      tokens = tokens.subspan(part.size());
    }
    return {};
  }

  Result<void> rollback(int sequence, int length) override {
    LATHE_ASSIGN(BatchSequence * of, sequences_.find(sequence));
    if (length < 0 || length > int(of->tokens().size()))
      return Error{Code::out_of_range,
                   fmt::format("Sequence {} has {} positions; it cannot go back to {}.", sequence,
                               of->tokens().size(), length),
                   {}};
    of->cut(std::size_t(length));
    return {};
  }

  Result<void> copy(int from, int to, int length) override;
  Result<std::span<const std::int32_t>> step(std::span<const BatchRow> rows) override;
  Result<std::span<const float>> logits(int row) override;
  Result<double> read_rate() override {
    LATHE_ASSIGN(ContextScope scope, context().enter());
    LATHE_TRY(check_stream_not_capturing(driver(), stream_));
    if (read_rate_ > 0) return read_rate_;
    LATHE_ASSIGN(read_rate_, measure_read_rate(*device_, stream_));
    return read_rate_;
  }

 private:
  const Context& context() const { return device_->context(); }
  const Driver& driver() const { return device_->driver(); }
  int first_row(int sequence) const { return sequence * decoding_.options.context; }

  // Puts checked rows on the stream and into their sequences; after an error neither.
  Result<void> launch(std::span<const BatchRow> rows);
  Result<void> send(const Rows& rows, std::int64_t bytes);
  void take_back(std::span<const BatchRow> rows);
  // Waits. `offset` is one in the scratch memory.
  Result<void> fetch(const PinnedBuffer& to, std::int64_t offset, std::size_t bytes);
  Result<void> prepare_rows(const SessionOptions& options);
  Result<void> describe(std::span<const KernelKey> prompt_keys);

  std::shared_ptr<const GgufFile> file_;
  const Plan decoding_;  // one token of one sequence, from which the others are made
  // In order of use: each needs those above it.
  std::shared_ptr<DeviceImpl> device_;
  const int most_rows_;
  Stream own_stream_;
  CUstream stream_ = nullptr;
  std::optional<BoundWeights> memory_;
  std::vector<Rows> rows_;            // by rising number of rows
  std::unique_ptr<Prefill> prefill_;  // null: prompts are taken as rows of steps
  PinnedBuffer host_sampled_, host_logits_;
  BatchSequences sequences_;
  std::vector<std::byte> head_;  // on its way to the device
  const Rows* last_ = nullptr;   // of the last step
  int last_rows_ = 0;
  int logits_rows_ = 0;        // whose logits are there
  std::vector<BatchRow> fed_;  // a piece of a prompt
  double read_rate_ = 0;
  bool drawn_ = true;  // whether the device may have sampling states other than greedy ones
  SessionReport report_;
};

Result<void> CudaBatch::prepare_rows(const SessionOptions& options) {
  std::vector<int> sizes;
  for (const int rows : kFewRows)
    if (rows < most_rows_) sizes.push_back(rows);
  sizes.push_back(most_rows_);
  std::vector<KernelKey> keys;
  for (const int rows : sizes) {
    LATHE_ASSIGN(BatchPlan plan, build_batch_plan(decoding_, rows));
    std::ranges::copy(plan.plan.distinct_keys(), std::back_inserter(keys));
    rows_.push_back({std::move(plan), {}, {}});
  }
  std::ranges::copy(BoundWeights::keys(decoding_), std::back_inserter(keys));
  return device_->prepare(keys, options.progress, options.cancelled);
}

Result<void> CudaBatch::prepare(const SessionOptions& options) {
  const TraceRange range("open batch");
  LATHE_ASSIGN(ContextScope scope, context().enter());
  stream_ = options.stream;
  if (!stream_) {
    LATHE_ASSIGN(own_stream_, create_stream(context()));
    stream_ = own_stream_.get();
  }
  LATHE_TRY(check_stream_not_capturing(driver(), stream_));

  const KernelCounts before = device_->counts();
  const Stopwatch building;
  LATHE_TRY(prepare_rows(options));
  LATHE_ASSIGN(
      std::optional<PrefillPlan> prefill,
      plan_prefill(*device_, decoding_, options.progress, options.cancelled, report_.notes));
  report_build(*device_, before, building.seconds(), report_);

  // One arena and one set of counters serve all: every counter ends as it began
  // (ops/matmul_meet.h).
  Plan& largest = rows_.back().plan.plan;
  for (const Rows& rows : rows_) {
    largest.arena_bytes = std::max(largest.arena_bytes, rows.plan.plan.arena_bytes);
    largest.counter_bytes = std::max(largest.counter_bytes, rows.plan.plan.counter_bytes);
  }
  const Stopwatch uploading;
  LATHE_ASSIGN(BoundWeights memory, BoundWeights::upload(*device_, stream_, *file_, largest,
                                                         options.progress, options.cancelled));
  memory_.emplace(std::move(memory));
  report_.upload_seconds = uploading.seconds();

  const ExecutorKind kind =
      options.executor == ExecutorKind::eager ? ExecutorKind::eager : ExecutorKind::graph;
  for (Rows& rows : rows_) {
    LATHE_ASSIGN(BoundPlan bound,
                 BoundPlan::bind(rows.plan.plan, memory_->addresses(), Alignment::kernel));
    rows.bound.emplace(std::move(bound));
    LATHE_ASSIGN(rows.executor,
                 plan_executor(*device_, rows.plan.plan, *rows.bound, kind, stream_));
  }
  report_.executor = executor_name(kind);
  report_sizes(plan(), report_);
  LATHE_TRY(describe(prefill ? prefill->plan.distinct_keys() : std::vector<KernelKey>()));
  if (prefill) {
    report_.chunk = decoding_.options.chunk;
    report_.scratch_bytes += prefill->plan.arena_bytes;
    LATHE_ASSIGN(prefill_,
                 Prefill::open(*device_, std::move(*prefill), memory_->addresses(), kind, stream_));
  }
  const std::int64_t vocab_bytes = std::int64_t{decoding_.spec.vocab} * 4;
  LATHE_ASSIGN(host_sampled_, allocate_pinned(context(), most_rows_ * 4ll, "sampled tokens"));
  LATHE_ASSIGN(host_logits_, allocate_pinned(context(), vocab_bytes, "logits"));
  head_.resize(std::size_t(rows_.back().plan.shape.bytes()));
  fed_.reserve(std::size_t(most_rows_));
  LATHE_DRIVER_CALL(driver(), cuStreamSynchronize, stream_);
  report_notes(*device_, decoding_, report_);
  return {};
}

Result<void> CudaBatch::describe(std::span<const KernelKey> prompt_keys) {
  report_.device = device_->description();
  report_.assembler = device_->assembler();
  std::set<KernelKey> keys(prompt_keys.begin(), prompt_keys.end());
  for (const Rows& rows : rows_)
    for (const KernelKey& key : rows.plan.plan.distinct_keys()) keys.insert(key);
  LATHE_ASSIGN(report_.routes, device_->routes_of(std::vector(keys.begin(), keys.end())));
  return {};
}

Result<void> CudaBatch::launch(std::span<const BatchRow> rows) {
  const auto fits = std::ranges::find_if(
      rows_, [&](const Rows& r) { return r.plan.shape.rows >= std::ssize(rows); });
  const BatchShape& shape = fits->plan.shape;
  const auto put = [&](std::int64_t at, std::size_t i, const auto& value) {
    std::memcpy(head_.data() + std::size_t(at) + i * sizeof value, &value, sizeof value);
  };
  put(0, 0, PrefillChunk{std::int32_t(rows.size())});
  bool drawn = false;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    BatchSequence& of = sequences_.at(rows[i].sequence);
    put(sizeof(PrefillChunk), i, rows[i].token);
    put(shape.places_at(), i,
        BatchPlace{std::int32_t(of.tokens().size()), first_row(rows[i].sequence)});
    put(shape.sampling_at(), i, of.state());
    drawn |= !of.is_greedy();
    of.append(std::span(&rows[i].token, 1));
  }
  // Greedy states are what the device has already, once it has had them.
  const bool states = drawn || drawn_ || last_ != &*fits || last_rows_ < std::ssize(rows);
  const std::int64_t bytes =
      states ? shape.sampling_at() + std::int64_t(rows.size() * sizeof(SamplingState))
             : shape.sampling_at();
  drawn_ = drawn;
  last_ = &*fits;
  last_rows_ = int(rows.size());
  Result<void> sent = send(*fits, bytes);
  if (!sent) take_back(rows);
  return sent;
}

// From pageable memory: the driver takes the bytes before it returns.
Result<void> CudaBatch::send(const Rows& rows, std::int64_t bytes) {
  const CUdeviceptr head = memory_->addresses().scratch + CUdeviceptr(rows.plan.head.offset);
  LATHE_DRIVER_CALL(driver(), cuMemcpyHtoDAsync, head, head_.data(), std::size_t(bytes), stream_);
  return rows.executor->launch(stream_, 1);
}

void CudaBatch::take_back(std::span<const BatchRow> rows) {
  for (const BatchRow& row : rows) {
    BatchSequence& of = sequences_.at(row.sequence);
    of.cut(of.tokens().size() - 1);
  }
  drawn_ = true;
  last_ = nullptr;
  last_rows_ = logits_rows_ = 0;
}

Result<void> CudaBatch::fetch(const PinnedBuffer& to, std::int64_t offset, std::size_t bytes) {
  const CUdeviceptr from = memory_->addresses().scratch + CUdeviceptr(offset);
  LATHE_DRIVER_CALL(driver(), cuMemcpyDtoHAsync, to.get(), from, bytes, stream_);
  LATHE_DRIVER_CALL(driver(), cuStreamSynchronize, stream_);
  return {};
}

Result<std::span<const std::int32_t>> CudaBatch::step(std::span<const BatchRow> rows) {
  LATHE_TRY(sequences_.check_rows(rows, most_rows_));
  const TraceRange range("step of a batch");
  LATHE_ASSIGN(ContextScope scope, context().enter());
  LATHE_TRY(check_stream_not_capturing(driver(), stream_));
  logits_rows_ = 0;
  LATHE_TRY(launch(rows));
  const std::int64_t sampled = last_->plan.head.offset + last_->plan.shape.sampled_at();
  if (Result<void> fetched = fetch(host_sampled_, sampled, rows.size() * 4); !fetched) {
    take_back(rows);
    return fetched.error();
  }
  logits_rows_ = last_rows_;
  return std::span(static_cast<const std::int32_t*>(host_sampled_.get()), rows.size());
}

Result<std::span<const float>> CudaBatch::logits(int row) {
  if (row < 0 || row >= logits_rows_)
    return Error{Code::out_of_range,
                 fmt::format("There are logits of {} rows, none of row {}.", logits_rows_, row),
                 {}};
  LATHE_ASSIGN(ContextScope scope, context().enter());
  LATHE_TRY(check_stream_not_capturing(driver(), stream_));
  const auto count = std::size_t(decoding_.spec.vocab);
  const std::int64_t from =
      last_->plan.plan.logits.offset + std::int64_t(std::size_t(row) * count * 4);
  LATHE_TRY(fetch(host_logits_, from, count * 4));
  return std::span(static_cast<const float*>(host_logits_.get()), count);
}

Result<void> CudaBatch::copy(int from, int to, int length) {
  LATHE_ASSIGN(const BatchSequence* source, sequences_.find(from));
  LATHE_ASSIGN(BatchSequence * target, sequences_.find(to));
  if (length < 0 || length > std::ssize(source->tokens()))
    return Error{Code::out_of_range,
                 fmt::format("Sequence {} has {} positions; {} cannot be copied.", from,
                             source->tokens().size(), length),
                 {}};
  if (from == to) return rollback(to, length);
  LATHE_ASSIGN(ContextScope scope, context().enter());
  LATHE_TRY(check_stream_not_capturing(driver(), stream_));
  target->cut(0);  // a copy that fails half-way leaves nothing of what was there
  const ModelSpec& spec = decoding_.spec;
  const std::int64_t row =
      kv_position_bytes(decoding_.options.kv, std::int64_t{spec.kv_heads} * spec.head_dim);
  const Addresses& at = memory_->addresses();
  for (const auto* caches : {&at.kv_k, &at.kv_v}) {
    for (const std::uint64_t cache : *caches) {
      if (length == 0) continue;
      LATHE_DRIVER_CALL(driver(), cuMemcpyDtoDAsync, cache + CUdeviceptr(first_row(to) * row),
                        cache + CUdeviceptr(first_row(from) * row), std::size_t(length * row),
                        stream_);
    }
  }
  target->take(source->tokens().first(std::size_t(length)));
  return {};
}

}  // namespace

Result<std::unique_ptr<Batch>> open_batch(std::shared_ptr<const GgufFile> file,
                                          const BatchOptions& options, const Platform& platform) {
  const ExecutorKind kind = options.session.executor;
  if (kind == ExecutorKind::mega || kind == ExecutorKind::cpu)
    return Error{
        Code::not_eligible,
        fmt::format("A batch has no {} executor; it has eager and graph.", executor_name(kind)),
        {}};
  LATHE_TRY(check_stream_has_context(options.session));
  LATHE_ASSIGN(std::shared_ptr<DeviceImpl> device, device_for(options.session, platform));
  LATHE_ASSIGN(const std::string note, why_not_fused(*device));
  if (!note.empty()) return Error{Code::not_eligible, "No batches: " + note, {}};
  PlanOptions wanted = options.session.plan;
  wanted.fusion = Fusion::full;
  wanted.sequences = options.sequences;
  LATHE_ASSIGN(wanted.blocks,
               device->context().attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  LATHE_ASSIGN(Plan plan, build_session_plan(*file, wanted));
  auto batch = std::make_unique<CudaBatch>(std::move(file), std::move(plan), std::move(device),
                                           options.rows);
  LATHE_TRY(batch->prepare(options.session));
  return std::unique_ptr<Batch>(std::move(batch));
}

}  // namespace lathe
