// Owns what all sessions share: the plan, the report, the length, and the checks before a step.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lathe/runtime/batch.h"
#include "lathe/runtime/session.h"
#include "runtime/host_choice.h"
#include "runtime/kv_access.h"
#include "runtime/platform.h"

namespace lathe {

class SessionBase : public Session {
 public:
  const Plan& plan() const final { return plan_; }
  const SessionReport& report() const final { return report_; }
  int length() const final { return length_; }
  Result<void> step_hidden(std::span<const float> state, std::int32_t token) final;
  Result<void> feed(std::span<const std::int32_t> tokens) final;
  Result<void> read_hidden(HiddenState which, std::span<float> to) final;
  Result<void> set_sampling(const Sampling& sampling) final;
  Result<void> rollback(int length) final;
  Result<void> read_logits(int first, std::span<float> to) final;
  Result<std::int32_t> choose(TokenSet allowed) final;
  Result<int> generate_constrained(std::int32_t token, std::span<std::int32_t> tokens,
                                   std::span<const std::int32_t> stops,
                                   const Constraint& constraint,
                                   const std::function<void(std::int32_t)>& each,
                                   const std::function<bool()>& cancelled) final;
  Result<void> reset() final;
  Result<void> read_kv(const KvRange& range, std::span<float> values) final;
  Result<void> write_kv(const KvRange& range, std::span<const float> values) final;
  Result<KvCapture> capture_kv(int positions, int most) final;
  Result<KvSnapshot> snapshot(int length) final;
  Result<void> restore(const KvSnapshot& snapshot) final;
  Result<std::vector<double>> step_times() final;
  Result<RoundTrip> submit_round_trip(int times) final;
  // What SessionOptions::parity promises, for a session that has just been opened.
  Result<void> hold_to_oracles(const SessionOptions& options);

 protected:
  SessionBase(std::shared_ptr<const GgufFile> file, Plan plan, ExecutorKind kind);

  // Ok when `token` and what follows it, `count` in all, can be decoded now. Formats only on
  // failure.
  Result<void> check_step(std::int32_t token, std::int64_t count = 1) const;
  // Ok when so many more positions have room.
  Result<void> check_room(std::int64_t count) const;
  // Ok when the plan has logits, of which a token is chosen.
  Result<void> check_chooses() const;
  // Ok when the plan goes from a token to a token: there can be runs.
  Result<void> check_runs() const;
  // Decodes a state that has been checked.
  virtual Result<void> take_hidden(std::span<const float> state, std::int32_t token) = 0;
  // Brings as many of a prompt's tokens as it will into the KV cache, at most all but the last, and
  // says how many. They have been checked.
  virtual Result<int> read_ahead(std::span<const std::int32_t>) { return 0; }
  // Counts a token that has been launched.
  void note_step(std::int32_t token) {
    tokens_[std::size_t(length_)] = token;
    stepped_to_ = ++length_;
    stepped_ = true;
    ended_early_ = false;
  }
  // Counts tokens that read_ahead() has read.
  Result<void> note_read(std::span<const std::int32_t> tokens);
  // Counts `first`, which was decoded, and then, each time, the token that was chosen.
  void note_decoded(std::int32_t first, std::span<const std::int32_t> chosen);
  // Ok when a step has run since the session was opened.
  Result<void> check_stepped() const;
  // The same, and the plan chooses tokens.
  Result<void> check_chosen() const;
  // The same, and its logits are still there.
  Result<void> check_logits() const;
  Result<void> check_stops(std::span<const std::int32_t> stops) const;
  // How many of the tokens there are, up to the first stop token.
  static int count_until(std::span<const std::int32_t> tokens, std::span<const std::int32_t> stops);
  // The tokens before `length` as the recent ones.
  void set_recent(SamplingState& state, int length) const;
  // Makes them recent again.
  Result<void> write_recent(int length);
  // Writes so many bytes of the control block's sampling state from `offset` on, after the steps
  // that have been taken.
  virtual Result<void> write_sampling(const SamplingState& state, std::size_t offset,
                                      std::size_t bytes) = 0;
  // Of the last step, which has logits; waits.
  virtual Result<void> fetch_logits(int first, std::span<float> to) = 0;
  // Of the last step, Plan::hidden as it is there; waits.
  virtual Result<void> fetch_hidden(std::span<float> to) = 0;
  // Microseconds of the last token's steps, and of what ends it where that is a launch; none where
  // they are not kept. Waits.
  virtual Result<std::vector<double>> fetch_times() = 0;
  // Each in microseconds; none where there is no GPU.
  virtual Result<std::vector<double>> time_round_trips(int) { return std::vector<double>(); }
  virtual const Addresses& addresses() const = 0;
  virtual Result<void> move_kv(std::span<const KvCopy> copies, KvMove move) = 0;

  std::shared_ptr<const GgufFile> file_;  // its map is what weights are read from
  const Plan plan_;
  SessionReport report_;
  std::vector<std::int32_t> tokens_;  // by position: what rollback() makes recent again
  int length_ = 0;
  int stepped_to_ = 0;  // the length after the last step, whose logits are there
  bool stepped_ = false;
  bool ended_early_ = false;  // by a stop token: what was last decoded is not the last token

 private:
  KvAccess kv();

  Sampling sampling_;
  std::optional<HostChoice> host_choice_;  // once it was asked for
};

Result<std::unique_ptr<Session>> open_cpu_session(std::shared_ptr<const GgufFile> file, Plan plan,
                                                  const SessionOptions& options);
// What a session cannot be opened with, whatever the model and the device.
Result<void> check_options(const SessionOptions& options);
// invalid_argument: a stream was given, and not what it belongs to.
Result<void> check_stream_has_context(const SessionOptions& options);
// Builds the plan and checks that the file has what it lists.
Result<Plan> build_session_plan(const GgufFile& file, const PlanOptions& options);
Result<std::unique_ptr<Session>> open_cuda_session(std::shared_ptr<const GgufFile> file,
                                                   const SessionOptions& options,
                                                   const Platform& platform);
// Session::open on a platform of the caller's.
Result<std::unique_ptr<Session>> open_session(std::shared_ptr<const GgufFile> file,
                                              const SessionOptions& options,
                                              const Platform& platform);

// Batch::open on a platform of the caller's.
Result<std::unique_ptr<Batch>> open_batch(std::shared_ptr<const GgufFile> file,
                                          const BatchOptions& options, const Platform& platform);

}  // namespace lathe
