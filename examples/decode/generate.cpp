// Owns the order of steps, choices and records, and which of them the clock counts.
#include "examples/decode/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>

namespace lathe::decode {

namespace {

using Clock = std::chrono::steady_clock;

// Tokens of a prompt between two looks at whether to go on.
constexpr int kPromptPiece = 4096;

double seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

class Generator {
 public:
  Generator(Session& session, const GenerateOptions& options, LogitsRecord& record)
      : session_(session),
        options_(options),
        record_(record),
        weight_bytes_(session.plan().counts().weight_bytes_read) {}

  Result<Generation> run() {
    LATHE_TRY(session_.set_sampling(options_.sampling));
    LATHE_TRY(feed_prompt());
    if (out_.prompt_fed == static_cast<int>(options_.prompt.size())) LATHE_TRY(continue_prompt());
    return std::move(out_);
  }

 private:
  Result<void> feed_prompt() {
    start_ = Clock::now();
    // The logits of every token are wanted when they go to a file.
    const int piece = record_.has_file() || session_.report().chunk == 0 ? 1 : kPromptPiece;
    std::span<const std::int32_t> left = options_.prompt;
    while (!left.empty()) {
      if (options_.interrupted()) {
        out_.ending = Ending::interrupted;
        break;
      }
      const auto next = left.first(std::min(left.size(), static_cast<std::size_t>(piece)));
      LATHE_TRY(session_.feed(next));
      left = left.subspan(next.size());
      out_.prompt_fed += static_cast<int>(next.size());
      options_.progress("reading the prompt", out_.prompt_fed,
                        static_cast<std::int64_t>(options_.prompt.size()));
      if (record_.has_file()) LATHE_TRY(write_logits());
    }
    return {};
  }

  Result<void> continue_prompt() {
    LATHE_ASSIGN(std::int32_t id, session_.sampled());  // waits for the last step of the prompt
    LATHE_TRY(check_token(id));
    out_.prompt_seconds = take_seconds();
    LATHE_TRY(hash_logits());
    while (!ends(id)) {
      if (shown_ > 0)
        --shown_;
      else
        LATHE_TRY(options_.on_token(id));
      out_.ids.push_back(id);
      if (ends_after_token()) break;
      LATHE_ASSIGN(id, feed(id));
      if (record_.has_file()) LATHE_TRY(write_logits());
      LATHE_TRY(hash_logits());
    }
    out_.step_seconds = take_seconds();
    return {};
  }

  // The token that follows this one.
  Result<std::int32_t> feed(std::int32_t id) {
    if (ready_.empty()) LATHE_TRY(run_ahead(id));
    const std::int32_t next = ready_.front();
    ready_.pop_front();
    LATHE_TRY(check_token(next));
    return next;
  }

  // Never further than the context or the wanted number of tokens.
  Result<void> run_ahead(std::int32_t id) {
    int count = std::min(options_.ahead, session_.plan().options.context - session_.length());
    if (options_.max_tokens >= 0)
      count = std::min(count, options_.max_tokens - static_cast<int>(out_.ids.size()));
    for (int i = 1; i <= count; ++i) count_step(session_.length() + i);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
    // Shown as they come, while the device goes on.
    Result<void> shown = {};
    bool ended = false;
    const auto show = [&](std::int32_t token) {
      ended = ended || !shown || token < 0 || options_.is_stop(token);
      if (ended) return;
      shown = options_.on_token(token);
      ++shown_;
    };
    LATHE_ASSIGN(const int chosen, session_.generate_until(id, tokens, options_.stops, show));
    LATHE_TRY(shown);
    ready_.assign(tokens.begin(), tokens.begin() + chosen);
    return {};
  }

  // A step that sees so many positions.
  void count_step(int length) {
    out_.bytes_read += weight_bytes_ + session_.plan().kv_bytes_read(length);
    ++out_.steps;
  }

  Result<void> check_token(std::int32_t id) const {
    if (id >= 0) return {};
    const std::size_t position = options_.prompt.size() + out_.ids.size() - 1;
    return Error{Code::internal, fmt::format("no logit at position {} is a number", position), {}};
  }

  bool ends(std::int32_t id) {
    if (options_.is_stop(id)) return end(Ending::stop_token);
    return options_.max_tokens == 0 && end(Ending::max_tokens);
  }

  bool ends_after_token() {
    if (static_cast<int>(out_.ids.size()) == options_.max_tokens) return end(Ending::max_tokens);
    if (options_.interrupted()) return end(Ending::interrupted);
    return ready_.empty() && session_.length() == session_.plan().options.context &&
           end(Ending::context_full);
  }

  bool end(Ending ending) {
    out_.ending = ending;
    return true;
  }

  Result<void> write_logits() {
    LATHE_TRY(session_.sampled());  // the wait for the step is the step's time
    const Clock::time_point begin = Clock::now();
    LATHE_ASSIGN(const std::span<const float> logits, session_.logits());
    LATHE_TRY(record_.write(logits));
    uncounted_ += Clock::now() - begin;
    return {};
  }

  Result<void> hash_logits() {
    if (options_.ahead > 1) return {};
    const Clock::time_point begin = Clock::now();
    LATHE_ASSIGN(const std::span<const float> logits, session_.logits());
    record_.hash(logits);
    uncounted_ += Clock::now() - begin;
    return {};
  }

  // Since the last call or the start, less what recording took.
  double take_seconds() {
    const Clock::time_point now = Clock::now();
    const double taken = seconds(now - start_ - uncounted_);
    start_ = now;
    uncounted_ = {};
    return taken;
  }

  Session& session_;
  const GenerateOptions& options_;
  LogitsRecord& record_;
  const std::int64_t weight_bytes_;
  std::deque<std::int32_t> ready_;  // run ahead, and not yet part of the answer
  int shown_ = 0;                   // of those, the first so many have been
  Clock::time_point start_;
  Clock::duration uncounted_{};
  Generation out_;
};

}  // namespace

const char* ending_name(Ending ending) {
  switch (ending) {
    case Ending::stop_token:
      return "stop token";
    case Ending::max_tokens:
      return "max tokens";
    case Ending::context_full:
      return "context full";
    case Ending::interrupted:
      return "interrupted";
  }
  return "unknown";
}

Result<Generation> generate(Session& session, const GenerateOptions& options,
                            LogitsRecord& record) {
  return Generator(session, options, record).run();
}

}  // namespace lathe::decode
