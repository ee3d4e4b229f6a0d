// Owns the opening of a session and the checks that come before any launch.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <new>

#include "runtime/session_base.h"
#include "runtime/session_choices.h"
#include "runtime/session_report.h"

namespace lathe {
namespace {

struct ExecutorName {
  ExecutorKind kind;
  const char* name;
};
constexpr std::array kExecutors = {
    ExecutorName{ExecutorKind::eager, "eager"}, ExecutorName{ExecutorKind::graph, "graph"},
    ExecutorName{ExecutorKind::mega, "mega"}, ExecutorName{ExecutorKind::cpu, "cpu"},
    ExecutorName{ExecutorKind::automatic, "auto"}};

// Of a run that can be cancelled: how many are decoded between two looks.
constexpr std::size_t kTokensPerLook = 8;

}  // namespace

const char* executor_name(ExecutorKind kind) {
  for (const ExecutorName& row : kExecutors) {
    if (row.kind == kind) return row.name;
  }
  return "unknown";
}

Result<ExecutorKind> executor_by_name(std::string_view name) {
  std::string known;
  for (const ExecutorName& row : kExecutors) {
    if (name == row.name) return row.kind;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  }
  return Error{Code::invalid_argument, fmt::format("There is no executor \"{}\".", name), {}}.with(
      "known", known);
}

SessionBase::SessionBase(std::shared_ptr<const GgufFile> file, Plan plan, ExecutorKind kind)
    : file_(std::move(file)),
      plan_(std::move(plan)),
      tokens_(static_cast<std::size_t>(plan_.options.context)) {
  report_.executor = executor_name(kind);
  report_.choices = plan_.choices;
  report_sizes(plan_, report_);
  report_pass(plan_, report_);
}

Result<void> SessionBase::check_step(std::int32_t token, std::int64_t count) const {
  if (plan_.input.bytes > 0)
    return Error{Code::invalid_argument,
                 "This session's part of the model takes hidden states, not tokens.",
                 {}};
  if (token < 0 || token >= plan_.spec.vocab) {
    return Error{Code::out_of_range,
                 fmt::format("Token {} is outside the vocabulary of {}.", token, plan_.spec.vocab),
                 {}};
  }
  return check_room(count);
}

Result<void> SessionBase::check_room(std::int64_t count) const {
  if (length_ + count > plan_.options.context) {
    return Error{Code::out_of_range,
                 fmt::format("The context of {} positions has {}, and no room for {} more.",
                             plan_.options.context, length_, count),
                 {}}
        .with("hint", "open the session with a larger context, or roll back");
  }
  return {};
}

Result<void> SessionBase::feed(std::span<const std::int32_t> tokens) {
  for (const std::int32_t token : tokens) LATHE_TRY(check_step(token, std::int64_t(tokens.size())));
  LATHE_ASSIGN(const int read, read_ahead(tokens));
  for (const std::int32_t token : tokens.subspan(std::size_t(read))) LATHE_TRY(step(token));
  return {};
}

Result<void> SessionBase::note_read(std::span<const std::int32_t> tokens) {
  stepped_ = false;  // until the step that follows
  std::ranges::copy(tokens, tokens_.begin() + length_);
  LATHE_TRY(write_recent(length_ + int(tokens.size())));
  length_ += int(tokens.size());
  return {};
}

void SessionBase::note_decoded(std::int32_t first, std::span<const std::int32_t> chosen) {
  for (const std::int32_t token : chosen) {
    tokens_[std::size_t(length_++)] = first;
    first = std::max(token, 0);
  }
  stepped_to_ = length_;
  stepped_ = true;
  ended_early_ = false;
}

Result<void> SessionBase::check_stepped() const {
  if (stepped_) return {};
  return Error{Code::invalid_argument, "There are no logits before the next step.", {}};
}

Result<void> SessionBase::set_sampling(const Sampling& sampling) {
  LATHE_TRY(check_sampling(sampling));
  LATHE_TRY(write_sampling(sampling_state(sampling), 0, offsetof(SamplingState, recent)));
  sampling_ = sampling;
  return {};
}

Result<void> SessionBase::check_chooses() const {
  if (plan_.logits.bytes > 0) return {};
  return Error{Code::invalid_argument,
               "This session's part of the model ends with a hidden state: no token is chosen.",
               {}};
}

Result<void> SessionBase::check_runs() const {
  LATHE_TRY(check_chooses());
  return plan_.input.bytes > 0 ? check_step(0) : Result<void>();
}

Result<void> SessionBase::check_chosen() const {
  LATHE_TRY(check_chooses());
  return check_stepped();
}

Result<void> SessionBase::check_logits() const {
  LATHE_TRY(check_chosen());
  if (!ended_early_) return {};
  return Error{Code::invalid_argument,
               "There are no logits: the last run of tokens ended at a stop token.",
               {}};
}

Result<void> SessionBase::check_stops(std::span<const std::int32_t> stops) const {
  if (stops.size() > StopTokens::kMost)
    return Error{
        Code::invalid_argument,
        fmt::format("{} stop tokens are too many: at most {}.", stops.size(), StopTokens::kMost),
        {}};
  for (const std::int32_t id : stops)
    if (id < 0 || id >= plan_.spec.vocab)
      return Error{
          Code::out_of_range,
          fmt::format("Stop token {} is not in the vocabulary of {}.", id, plan_.spec.vocab),
          {}};
  return {};
}

int SessionBase::count_until(std::span<const std::int32_t> tokens,
                             std::span<const std::int32_t> stops) {
  const auto found = std::ranges::find_first_of(tokens, stops);
  return static_cast<int>(found - tokens.begin()) + (found == tokens.end() ? 0 : 1);
}

Result<void> Session::generate(std::int32_t token, std::span<std::int32_t> tokens) {
  LATHE_TRY(generate_until(token, tokens, {}, {}));
  return {};
}

Result<int> Session::generate_until(std::int32_t token, std::span<std::int32_t> tokens,
                                    std::span<const std::int32_t> stops,
                                    const std::function<void(std::int32_t)>& each,
                                    const std::function<bool()>& cancelled) {
  // What does not fit as a whole is refused before the first token, as ever.
  const bool fits = std::ssize(tokens) <= plan().options.context - length();
  if (!cancelled || !fits) return generate_until(token, tokens, stops, each);
  std::size_t count = 0;
  while (count < tokens.size() && !cancelled()) {
    const std::span part = tokens.subspan(count, std::min(kTokensPerLook, tokens.size() - count));
    LATHE_ASSIGN(const int chosen, generate_until(token, part, stops, each));
    count += std::size_t(chosen);
    token = tokens[count - 1];
    if (std::ranges::find(stops, token) != stops.end()) break;
    token = std::max(token, 0);  // as the device does with a -1
  }
  return int(count);
}

Result<void> Session::record_step() {
  return Error{Code::not_eligible,
               fmt::format("The {} executor has no launches that could be recorded into a graph.",
                           report().executor),
               {}};
}

Result<void> Session::begin_replays(std::int32_t) {
  return record_step();
}

Result<void> Session::take_replays(std::span<std::int32_t>) {
  return record_step();
}

Result<void> SessionBase::rollback(int length) {
  if (length < 0 || length > length_) {
    return Error{Code::out_of_range,
                 fmt::format("Cannot roll back to {} positions: there are {}.", length, length_),
                 {}};
  }
  // Later entries of the KV cache are overwritten before they are read again, so nothing has to
  // move; of the recent tokens those that came later have taken the place of earlier ones.
  LATHE_TRY(write_recent(length));
  length_ = length;
  return {};
}

void SessionBase::set_recent(SamplingState& state, int length) const {
  for (int p = std::max(0, length - kMaxRepeatLast); p < length; ++p)
    state.recent[std::size_t(p % kMaxRepeatLast)] = tokens_[std::size_t(p)];
}

Result<void> SessionBase::write_recent(int length) {
  SamplingState state;
  set_recent(state, length);
  return write_sampling(state, offsetof(SamplingState, recent), sizeof(SamplingState::recent));
}

Result<void> check_options(const SessionOptions& options) {
  if (options.time_steps && options.executor != ExecutorKind::eager &&
      options.executor != ExecutorKind::cpu)
    return Error{Code::invalid_argument,
                 fmt::format("Steps are timed by the executors eager and cpu, not by {}.",
                             executor_name(options.executor)),
                 {}};
  if (!(options.parity >= 0 && options.parity <= 1))
    return Error{Code::invalid_argument,
                 fmt::format("parity is {}; it must be 0, for none, to 1.", options.parity),
                 {}};
  if (options.plan.kv_pages != 0)
    return Error{Code::invalid_argument,
                 fmt::format("kv_pages is {}; a session has its positions in a row, and it must be "
                             "0. Batches have pages (BatchOptions::kv_pages).",
                             options.plan.kv_pages),
                 {}};
  return {};
}

Result<std::unique_ptr<Session>> open_session(std::shared_ptr<const GgufFile> file,
                                              const SessionOptions& options,
                                              const Platform& platform) {
  if (!file) return Error{Code::invalid_argument, "The model file is null.", {}};
  LATHE_TRY(check_options(options));
  if (options.executor != ExecutorKind::cpu)
    return open_cuda_session(std::move(file), options, platform);
  if (options.device_weights)
    return Error{Code::invalid_argument,
                 "The cpu executor was given weights on a device, which it cannot read.",
                 {}};
  LATHE_ASSIGN(Plan plan, plan_for_cpu(*file, options.plan));
  return open_cpu_session(std::move(file), std::move(plan), options);
}

Result<Plan> build_session_plan(const GgufFile& file, const PlanOptions& options) {
  LATHE_ASSIGN(Plan plan, build_plan(file, options));
  for (const WeightSlot& slot : plan.weights) {
    // The plan was built from this file, but what follows reads without further checks.
    const GgufTensor* tensor = file.tensor(slot.name);
    if (!tensor || tensor->offset != slot.file_offset || tensor->bytes != slot.bytes) {
      return Error{
          Code::internal, fmt::format("Weight {} is not in the file as planned.", slot.name), {}};
    }
  }
  return plan;
}

Result<void> check_stream_has_context(const SessionOptions& options) {
  if (!options.stream || options.context || options.kernels) return {};
  return Error{Code::invalid_argument, "A stream was given without the context it belongs to.", {}};
}

Result<std::unique_ptr<Batch>> Batch::open(std::shared_ptr<const GgufFile> file,
                                           const BatchOptions& options) {
  try {
    return open_batch(std::move(file), options, Platform{});
  } catch (const std::bad_alloc&) {
    return Error{Code::out_of_memory, "There is no host memory to open the batch.", {}};
  }
}

Result<std::unique_ptr<Session>> Session::open(std::shared_ptr<const GgufFile> file,
                                               const SessionOptions& options) {
  try {
    return open_session(std::move(file), options, Platform{});
  } catch (const std::bad_alloc&) {
    return Error{Code::out_of_memory, "There is no host memory to open the session.", {}};
  }
}

}  // namespace lathe
