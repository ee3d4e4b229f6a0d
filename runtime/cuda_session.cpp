// Owns a session on a GPU: what is loaded and uploaded once, and the few driver calls of a token.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>

#include "codegen/stopwatch.h"
#include "runtime/chosen_tokens.h"
#include "runtime/control_writer.h"
#include "runtime/executor.h"
#include "runtime/kernels_ahead.h"
#include "runtime/prefill.h"
#include "runtime/read_rate.h"
#include "runtime/round_trip.h"
#include "runtime/service_kernel.h"
#include "runtime/session_base.h"
#include "runtime/session_choices.h"
#include "runtime/session_report.h"
#include "runtime/stream_wait.h"
#include "runtime/token_listener.h"
#include "runtime/trace_range.h"
#include "runtime/weights.h"

namespace lathe {
namespace {

constexpr std::size_t kFewTokens = 8;  // prompts shorter than this are read token by token

class CudaSession final : public SessionBase {
 public:
  CudaSession(std::shared_ptr<const GgufFile> file, Plan plan, ExecutorChoice executor,
              std::shared_ptr<DeviceImpl> device, std::chrono::milliseconds limit)
      : SessionBase(std::move(file), std::move(plan), executor.kind),
        kind_(executor.kind),
        choice_(std::move(executor)),
        limit_(limit),
        device_(std::move(device)) {}

  ~CudaSession() override {
    // What the session owns must not go while the stream still works with it.
    // A question about a stream that is being captured would spoil the capture.
    const auto scope = context().enter();
    if (scope && stream_ && !is_captured(driver(), stream_)) static_cast<void>(wait());
  }

  Result<void> prepare(const SessionOptions& options) {
    const TraceRange range("open session");
    LATHE_ASSIGN(ContextScope scope, context().enter());
    if (options.stream) {
      LATHE_TRY(check_stream_not_capturing(
          driver(), options.stream, "the opening of a session, which builds and loads kernels,"));
      stream_ = options.stream;
    } else {
      LATHE_ASSIGN(own_stream_, create_stream(context()));
      stream_ = own_stream_.get();
    }

    const KernelCounts before = device_->counts();
    std::optional<ProgramBuild> persistent;
    if (kind_ == ExecutorKind::mega) persistent.emplace(*device_, plan_);
    const std::vector<KernelKey> retiling = BoundWeights::keys(plan_);
    LATHE_TRY(device_->kernels().check_covered(plan_.distinct_keys()));
    std::vector<KernelKey> keys = launched_keys(plan_, kind_);
    std::ranges::copy(retiling, std::back_inserter(keys));
    LATHE_ASSIGN(std::optional<PrefillPlan> prefill, plan_prefill(*device_, plan_, report_.notes));
    KernelsAhead ahead(*device_, with_prompts(keys, prefill), options);
    LATHE_TRY(ahead.prepare(retiling));

    const Stopwatch uploading;
    LATHE_ASSIGN(memory_, BoundWeights::upload(*device_, stream_, *file_, plan_, options));
    report_.borrowed_bytes = memory_->borrowed_bytes();
    report_.upload_seconds = uploading.seconds();

    LATHE_TRY(ahead.prepare(keys));
    LATHE_ASSIGN(prefill, prepare_prefill(std::move(prefill), ahead.prepares(), report_.notes));

    LATHE_ASSIGN(BoundPlan bound, BoundPlan::bind(plan_, memory_->addresses(), Alignment::kernel));
    bound_.emplace(std::move(bound));
    LATHE_ASSIGN(chosen_, ChosenTokens::allocate(context(), plan_.options.context));
    LATHE_TRY(end_of_token_.load(*device_, memory_->addresses().control, chosen_.address(),
                                 plan_.options.context));
    LATHE_TRY(make_executor(persistent ? &*persistent : nullptr, options, ahead.prepares()));
    report_build(*device_, before, ahead, report_);
    if (persistent) report_persistent(*persistent, report_);
    report_choices(prefill, report_);
    LATHE_TRY(
        report_kernels(*device_, with_prompts(launched_keys(plan_, kind_), prefill), report_));
    report_unused(plan_.options, with_prompts(plan_.distinct_keys(), prefill), report_);
    if (prefill) {
      report_.chunk = plan_.options.chunk;
      report_.scratch_bytes += prefill->plan.arena_bytes;
      LATHE_ASSIGN(prefill_, Prefill::open(*device_, std::move(*prefill), memory_->addresses(),
                                           kind_, stream_));
    }
    LATHE_ASSIGN(host_sampled_, allocate_pinned(context(), sizeof(std::int32_t), "chosen token"));
    LATHE_ASSIGN(host_hidden_, allocate_pinned(context(), plan_.hidden.bytes, "hidden state"));
    if (plan_.logits.bytes > 0) {
      LATHE_ASSIGN(host_logits_, allocate_pinned(context(), plan_.logits.bytes, "logits"));
    }
    LATHE_ASSIGN(control_, ControlWriter::make(context(), memory_->addresses().control, stream_));
    LATHE_DRIVER_CALL(driver(), cuStreamSynchronize, stream_);
    report_notes(*device_, plan_, report_);
    tell_opening(*device_, report_);
    return {};
  }

  Result<void> step(std::int32_t token) override {
    LATHE_TRY(check_step(token));
    const TraceRange range("step");
    LATHE_ASSIGN(ContextScope scope, context().enter());
    LATHE_TRY(check_not_capturing("a step whose token the host gives"));
    return decode(token);
  }

  Result<void> take_hidden(std::span<const float> state, std::int32_t token) override {
    const TraceRange range("step");
    LATHE_ASSIGN(ContextScope scope, context().enter());
    LATHE_TRY(check_not_capturing("a step whose hidden state the host gives"));
    // From pageable memory: the driver takes the bytes before it returns.
    LATHE_DRIVER_CALL(driver(), cuMemcpyHtoDAsync, in_arena(plan_.input), state.data(),
                      state.size_bytes(), stream_);
    return decode(token);
  }

  // What is launched for a chunk costs as much as several tokens, however few it has.
  Result<int> read_ahead(std::span<const std::int32_t> tokens) override {
    if (!prefill_ || tokens.size() < kFewTokens) return 0;
    const TraceRange range("read prompt");
    const auto ahead = tokens.first(tokens.size() - 1);
    LATHE_ASSIGN(ContextScope scope, context().enter());
    LATHE_TRY(check_not_capturing("the reading of a prompt"));
    LATHE_TRY(prefill_->read(ahead, length_));
    LATHE_TRY(note_read(ahead));
    return int(ahead.size());
  }

  // No word from the host between the tokens: each step's end prepares the next.
  Result<int> generate_until(std::int32_t token, std::span<std::int32_t> tokens,
                             std::span<const std::int32_t> stops,
                             const std::function<void(std::int32_t)>& each) override {
    LATHE_TRY(check_runs());
    LATHE_TRY(check_stops(stops));
    if (tokens.empty()) return 0;
    LATHE_TRY(check_step(token, std::int64_t(tokens.size())));
    const TraceRange range("generate");
    LATHE_ASSIGN(ContextScope scope, context().enter());
    LATHE_TRY(check_not_capturing("a run of tokens, for which the host waits,"));
    LATHE_TRY(write_control(token));
    LATHE_TRY(control_.write_stops(stops));
    const std::span history = chosen_.from(length_).first(tokens.size());
    // Earlier steps, since rolled back, may still be about to write there.
    if (each) LATHE_TRY(wait());
    std::ranges::fill(history, ChosenTokens::kNotYet);
    LATHE_TRY(executor_->launch(stream_, int(tokens.size())));
    stepped_ = true;
    TokenListener listener(each);
    const bool late =
        each && tell_as_they_arrive(driver(), stream_, limit_, history, stops, listener);
    LATHE_TRY(wait(history, late));
    LATHE_TRY(executor_->check());
    std::ranges::copy(history, tokens.begin());
    const int count = count_until(tokens, stops);
    while (listener.told() < count) listener.tell(tokens[std::size_t(listener.told())]);
    note_decoded(token, tokens.first(std::size_t(count)));
    ended_early_ = count < int(tokens.size());
    last_ = tokens[std::size_t(count) - 1];
    // What was decoded beyond the stop token is forgotten.
    if (ended_early_) LATHE_TRY(rollback(length_));
    listener.rethrow();
    return count;
  }

  Result<void> record_step() override {
    LATHE_TRY(check_runs());
    LATHE_ASSIGN(ContextScope scope, context().enter());
    LATHE_TRY(check_stream_capturing(driver(), stream_));
    return executor_->record(stream_);
  }

  Result<void> begin_replays(std::int32_t token) override {
    LATHE_TRY(check_runs());
    LATHE_TRY(check_step(token));
    LATHE_ASSIGN(ContextScope scope, context().enter());
    LATHE_TRY(check_not_capturing("the beginning of replays"));
    LATHE_TRY(wait());
    std::ranges::fill(chosen_.from(length_), ChosenTokens::kNotYet);
    LATHE_TRY(write_control(token));
    stepped_ = false;  // what results there are will be of a replay that was not taken
    replays_ = {length_, token};
    return {};
  }

  Result<void> take_replays(std::span<std::int32_t> tokens) override {
    LATHE_TRY(replays_.check_begun(length_));
    if (tokens.empty()) return {};
    LATHE_TRY(check_step(replays_.token, std::int64_t(tokens.size())));
    LATHE_ASSIGN(ContextScope scope, context().enter());
    LATHE_TRY(check_not_capturing("the taking of replays, for which the host waits,"));
    const std::span history = chosen_.from(length_).first(tokens.size());
    LATHE_TRY(wait(history));
    LATHE_TRY(executor_->check());
    LATHE_TRY(Replays::check_run(history));
    std::ranges::copy(history, tokens.begin());
    note_decoded(replays_.token, tokens);
    const auto behind = chosen_.from(length_);
    stepped_ = behind.empty() || behind.front() == ChosenTokens::kNotYet;
    replays_ = {length_, std::max(tokens.back(), 0)};
    return {};
  }

  Result<std::int32_t> sampled() override {
    LATHE_TRY(check_chosen());
    if (ended_early_) return last_;
    LATHE_TRY(fetch(host_sampled_.get(),
                    memory_->addresses().control + offsetof(ControlBlock, sampled),
                    sizeof(std::int32_t)));
    return *static_cast<const std::int32_t*>(host_sampled_.get());
  }

  Result<std::span<const float>> logits() override {
    LATHE_TRY(check_logits());
    LATHE_TRY(fetch(host_logits_.get(), in_arena(plan_.logits), plan_.logits.bytes));
    return std::span(static_cast<const float*>(host_logits_.get()), std::size_t(plan_.spec.vocab));
  }

  Result<double> read_rate() override {
    if (read_rate_ > 0) return read_rate_;
    LATHE_ASSIGN(ContextScope scope, context().enter());
    LATHE_TRY(check_not_capturing("the measuring of the read rate"));
    LATHE_TRY(wait());
    LATHE_ASSIGN(read_rate_, measure_read_rate(*device_, stream_));
    return read_rate_;
  }

 private:
  const Context& context() const { return device_->context(); }
  const Driver& driver() const { return device_->driver(); }

  Result<void> check_not_capturing(const char* what) const {
    return check_stream_not_capturing(driver(), stream_, what);
  }

  // For all that is on the stream: the tokens of a run, or the steps that have been taken. `late`:
  // none has come for the limit.
  Result<void> wait(std::span<const std::int32_t> run = {}, bool late = false) const {
    const auto what = [&] {
      if (!executor_) return std::string("what opens the session");
      const auto chosen = std::ranges::find(run, ChosenTokens::kNotYet) - run.begin();
      return run.empty()
                 ? fmt::format("what was launched before position {} ({})", length_,
                               executor_->text())
                 : fmt::format("the step at position {} ({})", length_ + chosen, executor_->text());
    };
    return wait_for_stream(context(), stream_, limit_, chosen_.all(), what, late);
  }

  CUdeviceptr in_arena(const Operand& operand) const {
    return memory_->addresses().scratch + CUdeviceptr(operand.offset);
  }

  Result<void> write_control(std::int32_t token) {
    // Replays that ran and were not taken have left their tokens as recent ones.
    if (replays_.position >= 0) LATHE_TRY(write_recent(length_));
    return control_.write_token(token, length_);
  }

  Result<void> decode(std::int32_t token) {
    LATHE_TRY(write_control(token));
    LATHE_TRY(executor_->launch(stream_, 1));
    note_step(token);
    return {};
  }

  Result<void> write_sampling(const SamplingState& state, std::size_t offset,
                              std::size_t bytes) override {
    LATHE_ASSIGN(ContextScope scope, context().enter());
    LATHE_TRY(check_not_capturing("the writing of the sampling state"));
    const bool rules = offset == 0;  // and not the recent tokens
    if (!rules) replays_ = {};       // the text is another one
    if (rules) executor_->set_greedy(state.temperature == 0 && state.repeat_penalty == 1);
    return control_.write_sampling(state, offset, bytes);
  }

  // Into the place that logits() has it in, whose other values stay.
  Result<void> fetch_logits(int first, std::span<float> to) override {
    const CUdeviceptr from = in_arena(plan_.logits) + CUdeviceptr(first) * sizeof(float);
    float* at = static_cast<float*>(host_logits_.get()) + first;
    LATHE_TRY(fetch(at, from, std::int64_t(to.size_bytes())));
    std::copy_n(at, to.size(), to.begin());
    return {};
  }

  Result<void> fetch_hidden(std::span<float> to) override {
    LATHE_TRY(fetch(host_hidden_.get(), in_arena(plan_.hidden), plan_.hidden.bytes));
    std::copy_n(static_cast<const float*>(host_hidden_.get()), to.size(), to.begin());
    return {};
  }

  Result<std::vector<double>> fetch_times() override {
    LATHE_ASSIGN(ContextScope scope, context().enter());
    LATHE_TRY(check_not_capturing("the reading of a clock"));
    LATHE_TRY(wait());
    return executor_->times();
  }

  Result<std::vector<double>> time_round_trips(int times) override {
    LATHE_ASSIGN(ContextScope scope, context().enter());
    LATHE_TRY(check_not_capturing("the measuring of a round trip"));
    LATHE_TRY(wait());
    return lathe::time_round_trips(context(), stream_, times);
  }

  const Addresses& addresses() const override { return memory_->addresses(); }

  Result<void> move_kv(std::span<const KvCopy> copies, KvMove move) override {
    const TraceRange range("move keys and values");
    LATHE_ASSIGN(ContextScope scope, context().enter());
    LATHE_TRY(check_not_capturing("the moving of keys and values"));
    LATHE_TRY(wait());
    LATHE_TRY(move_on_device(driver(), stream_, copies, move));
    return executor_->check();
  }

  Result<void> fetch(void* to, CUdeviceptr from, std::int64_t bytes) {
    LATHE_ASSIGN(ContextScope scope, context().enter());
    LATHE_TRY(check_not_capturing("the reading back of a result"));
    LATHE_DRIVER_CALL(driver(), cuMemcpyDtoHAsync, to, from, std::size_t(bytes), stream_);
    LATHE_TRY(wait());
    return executor_->check();
  }

  Result<void> make_executor(ProgramBuild* persistent, const SessionOptions& options,
                             const HaveKernels& have) {
    const PreparedStep end = {&end_of_token_.kernel(), end_of_token_.parameters()};
    report_.launches = int(plan_.steps.size()) + 1;
    LATHE_ASSIGN(
        SessionExecutor made,
        session_executor(*device_, plan_, *bound_, persistent, memory_->addresses(),
                         chosen_.address(), end, choice_, options.time_steps, have, stream_));
    executor_ = std::move(made.executor);
    kind_ = made.kind;
    report_.executor = executor_name(kind_);
    report_.submissions = made.submissions;
    report_traffic(plan_, report_);
    report_.bytes_to_host += executor_->checked_bytes();
    if (!made.note.empty()) report_.notes.push_back("the graph executor: " + made.note);
    if (!made.note.empty()) choice_.told.reason = made.note;
    choice_.told.value = report_.executor;
    report_.choices.insert(report_.choices.begin(), choice_.told);
    return {};
  }

  ExecutorKind kind_;
  ExecutorChoice choice_;
  const std::chrono::milliseconds limit_;
  // In order of use: each needs those above it.
  std::shared_ptr<DeviceImpl> device_;
  Stream own_stream_;
  CUstream stream_ = nullptr;
  std::optional<BoundWeights> memory_;
  std::optional<BoundPlan> bound_;
  EndOfToken end_of_token_;
  ChosenTokens chosen_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Prefill> prefill_;  // null: prompts are read token by token
  ControlWriter control_;
  PinnedBuffer host_sampled_;
  PinnedBuffer host_hidden_;
  PinnedBuffer host_logits_;
  std::int32_t last_ = 0;  // the token of the last run, where it ended early
  Replays replays_;
  double read_rate_ = 0;
};

}  // namespace

Result<std::unique_ptr<Session>> open_cuda_session(std::shared_ptr<const GgufFile> file,
                                                   const SessionOptions& options,
                                                   const Platform& platform) {
  LATHE_TRY(check_stream_has_context(options));
  LATHE_ASSIGN(std::shared_ptr<DeviceImpl> device, device_for(options, platform));
  LATHE_ASSIGN(Plan plan, plan_for(*device, *file, plan_options(options)));
  LATHE_ASSIGN(ExecutorChoice executor, choose_executor(options.executor, plan));
  auto session =
      std::make_unique<CudaSession>(std::move(file), std::move(plan), std::move(executor),
                                    std::move(device), wait_limit_of(options));
  LATHE_TRY(session->prepare(options));
  LATHE_TRY(session->hold_to_oracles(options));
  return std::unique_ptr<Session>(std::move(session));
}

}  // namespace lathe
