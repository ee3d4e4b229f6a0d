// Owns what a batch on a GPU consists of. batch.cpp opens it, cuda_batch.cpp runs it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lathe/runtime/batch.h"
#include "runtime/batch_cache.h"
#include "runtime/batch_sequence.h"
#include "runtime/executor.h"
#include "runtime/host_choice.h"
#include "runtime/kv_access.h"
#include "runtime/prefill.h"
#include "runtime/read_rate.h"
#include "runtime/weights.h"

namespace lathe {

// The launches for at most plan.shape.rows rows.
struct BatchLaunches {
  BatchPlan plan;
  std::optional<BoundPlan> bound;
  std::unique_ptr<Executor> executor;
};

class CudaBatch final : public Batch {
 public:
  CudaBatch(std::shared_ptr<const GgufFile> file, Plan decoding, std::shared_ptr<DeviceImpl> device,
            int rows, std::chrono::milliseconds limit)
      : file_(std::move(file)),
        decoding_(std::move(decoding)),
        device_(std::move(device)),
        most_rows_(rows),
        limit_(limit),
        host_choice_(decoding_),
        sequences_(decoding_.options, decoding_.spec.vocab) {}

  ~CudaBatch() override {
    // What the batch owns must not go while the stream still works with it.
    // A question about a stream that is being captured would spoil the capture.
    const auto scope = context().enter();
    if (scope && stream_ && !is_captured(driver(), stream_)) static_cast<void>(wait());
  }

  Result<void> prepare(const SessionOptions& options);

  const Plan& plan() const override { return rows_.back().plan.plan; }
  const SessionReport& report() const override {
    report_.kv_pages_used = cache_->pages_used();
    return report_;
  }
  int rows() const override { return most_rows_; }

  Result<int> join(const Sampling& sampling) override { return sequences_.join(sampling); }

  Result<void> leave(int sequence) override {
    LATHE_ASSIGN(BatchSequence * of, sequences_.find(sequence));
    cut(sequence, 0);
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

  Result<void> feed(int sequence, std::span<const std::int32_t> tokens) override;

  Result<void> rollback(int sequence, int length) override;

  Result<void> copy(int from, int to, int length, int first) override;
  Result<int> fork(int sequence) override;
  Result<std::span<const std::int32_t>> step(std::span<const BatchRow> rows) override;
  Result<std::span<const float>> logits(int row) override;
  Result<std::int32_t> choose(int row, TokenSet allowed) override;

  Result<void> read_kv(int sequence, const KvRange& range, std::span<float> values) override {
    LATHE_ASSIGN(const KvAccess caches, kv(sequence));
    return caches.read(range, values);
  }
  Result<void> write_kv(int sequence, const KvRange& range, std::span<const float> values) override;
  Result<KvSnapshot> snapshot(int sequence, int length) override;
  Result<void> restore(int sequence, const KvSnapshot& snapshot) override;

  Result<double> read_rate() override {
    LATHE_ASSIGN(ContextScope scope, context().enter());
    LATHE_TRY(check_stream_not_capturing(driver(), stream_, "the measuring of the read rate"));
    if (read_rate_ > 0) return read_rate_;
    LATHE_TRY(wait());
    LATHE_ASSIGN(read_rate_, measure_read_rate(*device_, stream_));
    return read_rate_;
  }

 private:
  const Context& context() const { return device_->context(); }
  const Driver& driver() const { return device_->driver(); }
  Result<void> wait() const;

  Result<KvAccess> kv(int sequence);
  // Forgets a sequence's positions from `length` on.
  void cut(int sequence, int length);
  // What rows are about to write, for a cache that wants to know; valid until the next call.
  std::span<const PositionRange> ranges_of(std::span<const BatchRow> rows);
  // Has these positions ready to be written, which have been checked.
  Result<void> make(const PositionRange& range);
  // Puts checked rows on the stream and into their sequences; after an error neither.
  Result<void> launch(std::span<const BatchRow> rows, std::span<const PositionRange> ranges);
  Result<void> send(const BatchLaunches& rows, std::int64_t bytes);
  void take_back(std::span<const BatchRow> rows);
  // Waits. `offset` is one in the scratch memory.
  Result<void> fetch(const PinnedBuffer& to, std::int64_t offset, std::size_t bytes);
  // Plans each number of rows; the kernels of all.
  Result<std::vector<KernelKey>> plan_rows();
  Result<void> describe(std::span<const KernelKey> prompt_keys);

  std::shared_ptr<const GgufFile> file_;
  const Plan decoding_;  // one token of one sequence, from which the others are made
  // In order of use: each needs those above it.
  std::shared_ptr<DeviceImpl> device_;
  const int most_rows_;
  const std::chrono::milliseconds limit_;
  Stream own_stream_;
  CUstream stream_ = nullptr;
  std::optional<BoundWeights> memory_;
  std::optional<BatchCache> cache_;
  std::vector<BatchLaunches> rows_;   // by rising number of rows
  std::unique_ptr<Prefill> prefill_;  // null: prompts are taken as rows of steps
  PinnedBuffer host_sampled_, host_logits_;
  HostChoice host_choice_;
  BatchSequences sequences_;
  std::vector<std::byte> head_;          // on its way to the device
  const BatchLaunches* last_ = nullptr;  // of the last step
  int last_rows_ = 0;
  bool reading_ = false;       // a prompt, since the last step
  int logits_rows_ = 0;        // whose logits are there
  std::vector<BatchRow> fed_;  // a piece of a prompt
  std::vector<PositionRange> ranges_;
  double read_rate_ = 0;
  bool drawn_ = true;  // whether the device may have sampling states other than greedy ones
  // Only kv_pages_used changes once the batch is open: report() takes it from the cache.
  mutable SessionReport report_;
};

}  // namespace lathe
