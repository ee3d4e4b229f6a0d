// Owns decoding of several sequences of one model in one step: each weight is read once for all.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "lathe/codegen/sampling.h"
#include "lathe/runtime/session.h"

namespace lathe {

struct BatchOptions {
  // As of a session. plan.context: positions of each sequence. executor: eager, graph or automatic,
  // which is graph unless plan.tuning says eager.
  SessionOptions session = {};
  int sequences = 8;  // that can be there at once, 1 to 4096
  int rows = 32;      // tokens of a step at most, 1 to kMostBatchRows
  // 0: each sequence has room for its whole context from the beginning. Above 0: the KV cache is so
  // many pages of kPagePositions positions, which sequences get as they grow and give back when
  // they leave or go back; what they have in common they have once. Calls that want more than are
  // free are out_of_memory, with how many, before anything is launched.
  int kv_pages = 0;
};

// One token of a step.
struct BatchRow {
  int sequence = 0;
  std::int32_t token = 0;
};

// Sequences that join and leave as they please, on a GPU. Not thread-safe: one thread at a time.
// Calls order their work on the batch's stream. What a sequence gets does not depend on the others:
// the same tokens, fed and stepped in the same pieces, give the same logits bit by bit.
class Batch {
 public:
  // Builds, loads and uploads everything; feed() and step() allocate nothing. not_eligible: the
  // model or the device has no fused kernels, or the options name an executor that a batch has not.
  static Result<std::unique_ptr<Batch>> open(std::shared_ptr<const GgufFile> file,
                                             const BatchOptions& options);
  virtual ~Batch() = default;

  virtual const Plan& plan() const = 0;
  // Its kv_pages_used is that of the moment of the call.
  virtual const SessionReport& report() const = 0;
  // Tokens of a step, at most.
  virtual int rows() const = 0;

  // An empty sequence, with a number that no other one has until it leaves. out_of_range: all are
  // taken.
  virtual Result<int> join(const Sampling& sampling) = 0;
  Result<int> join() { return join(Sampling{}); }
  // The calls below: invalid_argument when there is no such sequence.
  virtual Result<void> leave(int sequence) = 0;
  // Positions in its KV cache.
  virtual Result<int> length(int sequence) const = 0;
  // Its tokens, by position; valid until the next call that changes the sequence.
  virtual Result<std::span<const std::int32_t>> tokens(int sequence) const = 0;
  // Brings tokens into its KV cache without choosing any. Asynchronous.
  virtual Result<void> feed(int sequence, std::span<const std::int32_t> tokens) = 0;
  // Forgets all positions from `length` on.
  virtual Result<void> rollback(int sequence, int length) = 0;
  // Gives `to` the first `length` positions of `from` in place of what it had: a prefix that
  // several sequences share is computed once, and with pages it is there once. Those before `first`
  // are not moved: `to` has them. Asynchronous. out_of_range: there are not so many.
  virtual Result<void> copy(int from, int to, int length, int first = 0) = 0;
  // As join(), with a sequence's rules of sampling and all of its positions. Asynchronous.
  virtual Result<int> fork(int sequence) = 0;

  // Takes a token of each row, which comes after those that its sequence has and those that earlier
  // rows of this step give it. All are checked before anything is launched. Waits for the end:
  // element i is the token chosen after row i, -1 when every logit is NaN; valid until the next
  // step.
  virtual Result<std::span<const std::int32_t>> step(std::span<const BatchRow> rows) = 0;
  // Of row `row` of the last step, where no feed() came after it: vocab values, valid until the
  // next call.
  virtual Result<std::span<const float>> logits(int row) = 0;
  // What the step would have chosen after that row if only these tokens were there, by the rules
  // and the draw that the step had; -1: none of them can be chosen. The host chooses, from all
  // logits.
  virtual Result<std::int32_t> choose(int row, TokenSet allowed) = 0;

  // As those of a session (docs/services.md); a snapshot may be a session's. With pages, sequences
  // whose last snapshot, restored or taken, is the same have it once as long as they keep it.
  virtual Result<void> read_kv(int sequence, const KvRange& range, std::span<float> values) = 0;
  virtual Result<void> write_kv(int sequence, const KvRange& range,
                                std::span<const float> values) = 0;
  virtual Result<KvSnapshot> snapshot(int sequence, int length) = 0;
  virtual Result<void> restore(int sequence, const KvSnapshot& snapshot) = 0;
  // As Session::read_rate().
  virtual Result<double> read_rate() = 0;
};

}  // namespace lathe
