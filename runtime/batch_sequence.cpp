// Owns the checks of what is asked of a batch's sequences.
#include "runtime/batch_sequence.h"

#include <fmt/format.h>

#include <algorithm>

namespace lathe {

Result<int> BatchSequences::join(const Sampling& sampling) {
  LATHE_TRY(check_sampling(sampling));
  return join(sampling_state(sampling));
}

Result<int> BatchSequences::join(const SamplingState& rules) {
  const auto free = std::ranges::find(all_, false, &BatchSequence::joined);
  if (free == all_.end())
    return Error{Code::out_of_range,
                 fmt::format("All {} sequences of the batch are taken.", all_.size()),
                 {}}
        .with("hint", "let one leave, or open the batch with more (BatchOptions::sequences)");
  free->join(rules, context_);
  return int(free - all_.begin());
}

int BatchSequences::with_origin(std::uint64_t snapshot) const {
  const auto found = std::ranges::find_if(all_, [&](const BatchSequence& each) {
    return each.joined() && each.origin().snapshot == snapshot;
  });
  return found == all_.end() ? -1 : int(found - all_.begin());
}

Result<const BatchSequence*> BatchSequences::find(int sequence) const {
  if (sequence >= 0 && sequence < std::ssize(all_) && all_[std::size_t(sequence)].joined())
    return &all_[std::size_t(sequence)];
  return Error{Code::invalid_argument, fmt::format("The batch has no sequence {}.", sequence), {}};
}

Result<BatchSequence*> BatchSequences::find(int sequence) {
  LATHE_TRY(std::as_const(*this).find(sequence));
  return &at(sequence);
}

Result<void> BatchSequences::check_token(int sequence, std::int32_t token) const {
  if (token >= 0 && token < vocab_) return {};
  return Error{Code::out_of_range,
               fmt::format("Token {} of sequence {} is not in the vocabulary of {}.", token,
                           sequence, vocab_),
               {}};
}

Result<void> BatchSequences::check_room(int sequence, std::int64_t more) const {
  const std::int64_t length = std::ssize(all_[std::size_t(sequence)].tokens());
  if (length + more <= context_) return {};
  return Error{Code::out_of_range,
               fmt::format("Sequence {} has {} positions and room for {}; {} more do not fit.",
                           sequence, length, context_, more),
               {}}
      .with("hint", "a larger context at open (PlanOptions::context), or rollback()");
}

Result<void> BatchSequences::check_rows(std::span<const BatchRow> rows, int most) {
  if (rows.empty() || std::ssize(rows) > most)
    return Error{
        Code::out_of_range,
        fmt::format("A step has {} rows; it must have between 1 and {}.", rows.size(), most),
        {}};
  std::ranges::fill(more_, 0);
  for (const BatchRow& row : rows) {
    LATHE_TRY(find(row.sequence));
    LATHE_TRY(check_token(row.sequence, row.token));
    LATHE_TRY(check_room(row.sequence, ++more_[std::size_t(row.sequence)]));
  }
  return {};
}

}  // namespace lathe
