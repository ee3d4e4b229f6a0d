// Owns the work of a batch on a GPU: its steps, and what is asked of its sequences.
#include "runtime/cuda_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/stream_wait.h"
#include "runtime/trace_range.h"

namespace lathe {
namespace {

// Shorter pieces of a prompt are taken as rows of a step.
constexpr std::size_t kFewTokens = 32;

}  // namespace

Result<void> CudaBatch::wait() const {
  return wait_for_stream(context(), stream_, limit_, {}, [&] {
    if (reading_) return std::string("the reading of a prompt");
    return last_ ? fmt::format("a step of {} rows ({})", last_rows_, last_->executor->text())
                 : std::string("what a batch has put on its stream");
  });
}

Result<void> CudaBatch::feed(int sequence, std::span<const std::int32_t> tokens) {
  LATHE_ASSIGN(BatchSequence * of, sequences_.find(sequence));
  for (const std::int32_t token : tokens) LATHE_TRY(sequences_.check_token(sequence, token));
  LATHE_TRY(sequences_.check_room(sequence, std::int64_t(tokens.size())));
  const int length = int(of->tokens().size());
  const PositionRange whole{sequence, length, length + int(tokens.size())};
  LATHE_TRY(cache_->check({&whole, 1}));
  const TraceRange range("feed sequence");
  LATHE_ASSIGN(ContextScope scope, context().enter());
  LATHE_TRY(check_stream_not_capturing(driver(), stream_, "the reading of a prompt"));
  if (prefill_ && tokens.size() >= kFewTokens) {
    reading_ = true;
    LATHE_TRY(cache_->make({&whole, 1}));
    if (Result<void> read = prefill_->read(tokens, length, cache_->first_row(sequence)); !read) {
      cut(sequence, length);
      return read;
    }
    of->append(tokens);
    return {};
  }
  logits_rows_ = 0;
  while (!tokens.empty()) {
    const auto part = tokens.first(std::min(tokens.size(), std::size_t(most_rows_)));
    fed_.clear();
    for (const std::int32_t token : part) fed_.push_back({sequence, token});
    LATHE_TRY(launch(fed_, ranges_of(fed_)));
    tokens = tokens.subspan(part.size());
  }
  return {};
}

Result<void> CudaBatch::rollback(int sequence, int length) {
  LATHE_ASSIGN(BatchSequence * of, sequences_.find(sequence));
  if (length < 0 || length > int(of->tokens().size()))
    return Error{Code::out_of_range,
                 fmt::format("Sequence {} has {} positions; it cannot go back to {}.", sequence,
                             of->tokens().size(), length),
                 {}};
  cut(sequence, length);
  return {};
}

void CudaBatch::cut(int sequence, int length) {
  sequences_.at(sequence).cut(std::size_t(length));
  cache_->cut(sequence, length);
}

std::span<const PositionRange> CudaBatch::ranges_of(std::span<const BatchRow> rows) {
  ranges_.clear();
  if (!cache_->is_paged()) return ranges_;
  for (const BatchRow& row : rows) {
    const auto found = std::ranges::find(ranges_, row.sequence, &PositionRange::sequence);
    if (found != ranges_.end()) {
      ++found->end;
      continue;
    }
    const int length = int(sequences_.at(row.sequence).tokens().size());
    ranges_.push_back({row.sequence, length, length + 1});
  }
  return ranges_;
}

Result<void> CudaBatch::launch(std::span<const BatchRow> rows,
                               std::span<const PositionRange> ranges) {
  const auto fits = std::ranges::find_if(
      rows_, [&](const BatchLaunches& r) { return r.plan.shape.rows >= std::ssize(rows); });
  const BatchShape& shape = fits->plan.shape;
  LATHE_TRY(cache_->make(ranges));
  const auto put = [&](std::int64_t at, std::size_t i, const auto& value) {
    std::memcpy(head_.data() + std::size_t(at) + i * sizeof value, &value, sizeof value);
  };
  put(0, 0, PrefillChunk{std::int32_t(rows.size())});
  bool drawn = false;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    BatchSequence& of = sequences_.at(rows[i].sequence);
    put(sizeof(PrefillChunk), i, rows[i].token);
    put(shape.places_at(), i,
        BatchPlace{std::int32_t(of.tokens().size()), cache_->first_row(rows[i].sequence)});
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
  reading_ = false;
  Result<void> sent = send(*fits, bytes);
  if (!sent) take_back(rows);
  return sent;
}

// From pageable memory: the driver takes the bytes before it returns.
Result<void> CudaBatch::send(const BatchLaunches& rows, std::int64_t bytes) {
  const CUdeviceptr head = memory_->addresses().scratch + CUdeviceptr(rows.plan.head.offset);
  LATHE_DRIVER_CALL(driver(), cuMemcpyHtoDAsync, head, head_.data(), std::size_t(bytes), stream_);
  return rows.executor->launch(stream_, 1);
}

void CudaBatch::take_back(std::span<const BatchRow> rows) {
  for (const BatchRow& row : rows)
    cut(row.sequence, int(sequences_.at(row.sequence).tokens().size()) - 1);
  drawn_ = true;
  last_ = nullptr;
  last_rows_ = logits_rows_ = 0;
}

Result<void> CudaBatch::fetch(const PinnedBuffer& to, std::int64_t offset, std::size_t bytes) {
  const CUdeviceptr from = memory_->addresses().scratch + CUdeviceptr(offset);
  LATHE_DRIVER_CALL(driver(), cuMemcpyDtoHAsync, to.get(), from, bytes, stream_);
  return wait();
}

Result<std::span<const std::int32_t>> CudaBatch::step(std::span<const BatchRow> rows) {
  LATHE_TRY(sequences_.check_rows(rows, most_rows_));
  const std::span<const PositionRange> ranges = ranges_of(rows);
  LATHE_TRY(cache_->check(ranges));
  const TraceRange range("step of a batch");
  LATHE_ASSIGN(ContextScope scope, context().enter());
  LATHE_TRY(check_stream_not_capturing(driver(), stream_,
                                       "a step of a batch, for which the host waits,"));
  logits_rows_ = 0;
  LATHE_TRY(launch(rows, ranges));
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
  LATHE_TRY(check_stream_not_capturing(driver(), stream_, "the reading back of logits"));
  const auto count = std::size_t(decoding_.spec.vocab);
  const std::int64_t from =
      last_->plan.plan.logits.offset + std::int64_t(std::size_t(row) * count * 4);
  LATHE_TRY(fetch(host_logits_, from, count * 4));
  return std::span(static_cast<const float*>(host_logits_.get()), count);
}

// The step's own copy of the row says where it stood, whatever its sequence did since.
Result<std::int32_t> CudaBatch::choose(int row, TokenSet allowed) {
  LATHE_TRY(check_token_set(allowed, decoding_.spec.vocab));
  LATHE_ASSIGN(const std::span<const float> values, logits(row));
  const BatchShape& shape = last_->plan.shape;
  const auto take = [&](std::int64_t at, auto& value) {
    const std::size_t from = std::size_t(at) + std::size_t(row) * sizeof value;
    std::memcpy(&value, head_.data() + from, sizeof value);
  };
  ChoicePoint at;
  BatchPlace place;
  take(sizeof(PrefillChunk), at.token);
  take(shape.places_at(), place);
  take(shape.sampling_at(), at.rules);
  at.position = place.position;
  return host_choice_.choose(values, at, allowed);
}

Result<KvAccess> CudaBatch::kv(int sequence) {
  LATHE_ASSIGN(const BatchSequence* of, sequences_.find(sequence));
  const auto move = [this](std::span<const KvCopy> copies, KvMove way) -> Result<void> {
    LATHE_ASSIGN(ContextScope scope, context().enter());
    LATHE_TRY(check_stream_not_capturing(driver(), stream_, "the moving of keys and values"));
    LATHE_TRY(wait());
    return move_on_device(driver(), stream_, copies, way);
  };
  return KvAccess(decoding_, memory_->addresses(), cache_->places(sequence), of->tokens(), move);
}

Result<void> CudaBatch::make(const PositionRange& range) {
  if (!cache_->is_paged()) return {};
  LATHE_ASSIGN(ContextScope scope, context().enter());
  LATHE_TRY(check_stream_not_capturing(driver(), stream_, "the moving of keys and values"));
  return cache_->make({&range, 1});
}

Result<void> CudaBatch::write_kv(int sequence, const KvRange& range,
                                 std::span<const float> values) {
  LATHE_ASSIGN(const KvAccess caches, kv(sequence));
  LATHE_TRY(caches.check_range(range, values.size()));
  const PositionRange written{sequence, range.first, range.first + range.positions};
  LATHE_TRY(cache_->check({&written, 1}));
  LATHE_TRY(make(written));
  BatchSequence& of = sequences_.at(sequence);
  if (range.first < of.origin().length) of.set_origin({});
  return caches.write(range, values);
}

Result<KvSnapshot> CudaBatch::snapshot(int sequence, int length) {
  LATHE_ASSIGN(const KvAccess caches, kv(sequence));
  LATHE_ASSIGN(KvSnapshot taken, caches.snapshot(length, *file_));
  sequences_.at(sequence).set_origin({KvAccess::number_of(taken), length});
  return taken;
}

Result<void> CudaBatch::restore(int sequence, const KvSnapshot& snapshot) {
  LATHE_ASSIGN(const KvAccess before, kv(sequence));
  LATHE_TRY(before.check(snapshot, *file_));
  const BatchSequence::Origin origin{KvAccess::number_of(snapshot), snapshot.length()};
  if (const int other = sequences_.with_origin(origin.snapshot); cache_->is_paged() && other >= 0) {
    LATHE_TRY(copy(other, sequence, origin.length, 0));
    sequences_.at(sequence).set_origin(origin);
    return {};
  }
  const PositionRange whole{sequence, 0, origin.length};
  LATHE_TRY(cache_->check_again(whole));
  cut(sequence, 0);
  LATHE_TRY(make(whole));
  LATHE_ASSIGN(const KvAccess caches, kv(sequence));
  if (Result<void> restored = caches.restore(snapshot); !restored) {
    cut(sequence, 0);
    return restored;
  }
  sequences_.at(sequence).take(snapshot.tokens());
  sequences_.at(sequence).set_origin(origin);
  return {};
}

Result<int> CudaBatch::fork(int sequence) {
  LATHE_ASSIGN(const BatchSequence* source, sequences_.find(sequence));
  LATHE_ASSIGN(const int other, sequences_.join(source->state()));
  if (Result<void> copied = copy(sequence, other, int(source->tokens().size()), 0); !copied) {
    cut(other, 0);
    sequences_.at(other).leave();
    return copied.error();
  }
  return other;
}

Result<void> CudaBatch::copy(int from, int to, int length, int first) {
  LATHE_ASSIGN(const BatchSequence* source, sequences_.find(from));
  LATHE_ASSIGN(BatchSequence * target, sequences_.find(to));
  if (length < 0 || length > std::ssize(source->tokens()))
    return Error{Code::out_of_range,
                 fmt::format("Sequence {} has {} positions; {} cannot be copied.", from,
                             source->tokens().size(), length),
                 {}};
  if (first < 0 || first > length || first > std::ssize(target->tokens()))
    return Error{Code::out_of_range,
                 fmt::format("Sequence {} has {} positions, and is to keep {} before a copy up to "
                             "{}.",
                             to, target->tokens().size(), first, length),
                 {}};
  if (from == to) return rollback(to, length);
  LATHE_TRY(cache_->check_copy(from, to, first, length));
  LATHE_ASSIGN(ContextScope scope, context().enter());
  LATHE_TRY(check_stream_not_capturing(driver(), stream_, "the copying of a sequence"));
  cut(to, first);  // a copy that fails half-way leaves nothing of what was there
  LATHE_TRY(cache_->copy(from, to, first, length));
  target->append(
      source->tokens().subspan(std::size_t(first), std::size_t(length) - std::size_t(first)));
  return {};
}

}  // namespace lathe
