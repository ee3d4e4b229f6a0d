// Owns the opening of a batch on a GPU: its plans for few and many rows, kernels and memory.
#include "lathe/runtime/batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "codegen/stopwatch.h"
#include "plan/tuning_overrides.h"
#include "runtime/cuda_batch.h"
#include "runtime/kernels_ahead.h"
#include "runtime/session_base.h"
#include "runtime/session_choices.h"
#include "runtime/session_report.h"
#include "runtime/stream_wait.h"
#include "runtime/trace_range.h"

namespace lathe {
namespace {

// Steps of fewer rows than the most have kernels for so many.
constexpr int kFewRows[] = {8, 16};

// `kind` is a batch's or automatic. A tuning may name mega too, for sessions.
Result<Selected> choose_batch_executor(ExecutorKind kind, const Plan& plan) {
  if (kind != ExecutorKind::automatic)
    return Selected{"executor", executor_name(kind), "as it was set", true};
  LATHE_ASSIGN(const TuningOverrides tuning, parse_tuning(plan.options.tuning));
  for (const ExecutorKind named : {ExecutorKind::eager, ExecutorKind::graph})
    if (tuning.executor == executor_name(named))
      return Selected{"executor", tuning.executor, "as it was set", true};
  return Selected{"executor", executor_name(ExecutorKind::graph), "one launch a step of a batch",
                  false};
}

}  // namespace

Result<std::vector<KernelKey>> CudaBatch::plan_rows() {
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
  return keys;
}

Result<void> CudaBatch::prepare(const SessionOptions& options) {
  const TraceRange range("open batch");
  LATHE_ASSIGN(ContextScope scope, context().enter());
  if (options.stream) {
    LATHE_TRY(check_stream_not_capturing(
        driver(), options.stream, "the opening of a batch, which builds and loads kernels,"));
    stream_ = options.stream;
  } else {
    LATHE_ASSIGN(own_stream_, create_stream(context()));
    stream_ = own_stream_.get();
  }

  const KernelCounts before = device_->counts();
  const std::vector<KernelKey> retiling = BoundWeights::keys(decoding_);
  LATHE_ASSIGN(std::vector<KernelKey> keys, plan_rows());
  std::ranges::copy(retiling, std::back_inserter(keys));
  LATHE_TRY(device_->kernels().check_covered(keys));
  LATHE_ASSIGN(std::optional<PrefillPlan> prefill,
               plan_prefill(*device_, decoding_, report_.notes));
  KernelsAhead ahead(*device_, with_prompts(keys, prefill), options);
  LATHE_TRY(ahead.prepare(retiling));

  // One arena and one set of counters serve all: every counter ends as it began
  // (ops/matmul_meet.h).
  Plan& largest = rows_.back().plan.plan;
  for (const BatchLaunches& rows : rows_) {
    largest.arena_bytes = std::max(largest.arena_bytes, rows.plan.plan.arena_bytes);
    largest.counter_bytes = std::max(largest.counter_bytes, rows.plan.plan.counter_bytes);
  }
  const Stopwatch uploading;
  LATHE_ASSIGN(memory_, BoundWeights::upload(*device_, stream_, *file_, largest, options));
  report_.borrowed_bytes = memory_->borrowed_bytes();
  report_.upload_seconds = uploading.seconds();

  LATHE_TRY(ahead.prepare(keys));
  LATHE_ASSIGN(prefill, prepare_prefill(std::move(prefill), ahead.prepares(), report_.notes));
  report_build(*device_, before, ahead, report_);

  cache_.emplace(decoding_, memory_->addresses(), driver(), stream_);
  LATHE_ASSIGN(const Selected executor, choose_batch_executor(options.executor, decoding_));
  LATHE_ASSIGN(const ExecutorKind kind, executor_by_name(executor.value));
  for (BatchLaunches& rows : rows_) {
    LATHE_ASSIGN(BoundPlan bound,
                 BoundPlan::bind(rows.plan.plan, memory_->addresses(), Alignment::kernel));
    rows.bound.emplace(std::move(bound));
    LATHE_ASSIGN(rows.executor,
                 plan_executor(*device_, rows.plan.plan, *rows.bound, kind, stream_));
  }
  report_.executor = executor.value;
  report_.choices = {executor};
  for (const BatchLaunches& rows : rows_)
    std::ranges::copy(rows.plan.plan.choices, std::back_inserter(report_.choices));
  report_choices(prefill, report_);
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
  ranges_.reserve(std::size_t(most_rows_));
  LATHE_DRIVER_CALL(driver(), cuStreamSynchronize, stream_);
  report_notes(*device_, decoding_, report_);
  tell_opening(*device_, report_);
  return {};
}

Result<void> CudaBatch::describe(std::span<const KernelKey> prompt_keys) {
  std::set<KernelKey> keys(prompt_keys.begin(), prompt_keys.end());
  for (const BatchLaunches& rows : rows_)
    for (const KernelKey& key : rows.plan.plan.distinct_keys()) keys.insert(key);
  const std::vector<KernelKey> made(keys.begin(), keys.end());
  report_unused(decoding_.options, made, report_);
  return report_kernels(*device_, made, report_);
}

Result<std::unique_ptr<Batch>> open_batch(std::shared_ptr<const GgufFile> file,
                                          const BatchOptions& options, const Platform& platform) {
  if (!file) return Error{Code::invalid_argument, "The model file is null.", {}};
  LATHE_TRY(check_tuning(options.session.plan.tuning));
  const ExecutorKind kind = options.session.executor;
  if (kind == ExecutorKind::mega || kind == ExecutorKind::cpu)
    return Error{
        Code::not_eligible,
        fmt::format("A batch has no {} executor; it has eager and graph.", executor_name(kind)),
        {}};
  if (options.session.time_steps || options.session.parity != 0)
    return Error{Code::not_eligible,
                 "A batch has no times of its steps, and no parity with the oracles.",
                 {}};
  if (options.session.plan.kv_pages != 0)
    return Error{Code::invalid_argument,
                 fmt::format("PlanOptions::kv_pages is {}; a batch has its pages by "
                             "BatchOptions::kv_pages, and it must be 0.",
                             options.session.plan.kv_pages),
                 {}};
  LATHE_TRY(check_stream_has_context(options.session));
  LATHE_ASSIGN(std::shared_ptr<DeviceImpl> device, device_for(options.session, platform));
  PlanOptions wanted = options.session.plan;
  wanted.fusion = Fusion::automatic;
  wanted.sequences = options.sequences;
  wanted.kv_pages = options.kv_pages;
  if (!wanted.measured) wanted.measured = "";  // the table is of single sequences
  LATHE_ASSIGN(Plan plan, plan_for(*device, *file, wanted));
  if (plan.options.fusion != Fusion::full)
    return Error{
        Code::not_eligible,
        "No batches: " + (plan.notes.empty() ? "fusion is none, as it was set" : plan.notes.back()),
        {}};
  auto batch = std::make_unique<CudaBatch>(std::move(file), std::move(plan), std::move(device),
                                           options.rows, wait_limit_of(options.session));
  LATHE_TRY(batch->prepare(options.session));
  return std::unique_ptr<Batch>(std::move(batch));
}

}  // namespace lathe
