// Owns what a batch knows of its sequences: their tokens, how the next one is chosen, and the
// checks of what is asked of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "lathe/codegen/sampling.h"
#include "lathe/plan/plan.h"
#include "lathe/runtime/batch.h"

namespace lathe {

class BatchSequence {
 public:
  bool joined() const { return joined_; }
  std::span<const std::int32_t> tokens() const { return tokens_; }

  void join(const SamplingState& rules, int context) {
    tokens_.reserve(std::size_t(context));  // so that steps allocate nothing
    joined_ = true;
    state_ = rules;
    tokens_.clear();
    origin_ = {};
  }
  void leave() { joined_ = false; }

  void append(std::span<const std::int32_t> tokens) {
    for (const std::int32_t token : tokens) {
      remember(tokens_.size(), token);
      tokens_.push_back(token);
    }
  }
  // Forgets the tokens from `length` on.
  void cut(std::size_t length) {
    if (length < std::size_t(origin_.length)) origin_ = {};
    tokens_.resize(length);
    remember_all();
  }
  void take(std::span<const std::int32_t> tokens) {
    tokens_.assign(tokens.begin(), tokens.end());
    remember_all();
  }

  // The snapshot that its first positions are, to the bit, where that is known.
  struct Origin {
    std::uint64_t snapshot = 0;  // 0: none
    int length = 0;
  };
  const Origin& origin() const { return origin_; }
  void set_origin(const Origin& origin) { origin_ = origin; }

  bool is_greedy() const { return state_.temperature == 0 && state_.repeat_penalty == 1; }
  // For a token at position tokens().size().
  const SamplingState& state() const { return state_; }

 private:
  void remember(std::size_t position, std::int32_t token) {
    state_.recent[position % kMaxRepeatLast] = token;
  }
  void remember_all() {
    const std::size_t from = tokens_.size() - std::min<std::size_t>(tokens_.size(), kMaxRepeatLast);
    for (std::size_t p = from; p < tokens_.size(); ++p) remember(p, tokens_[p]);
  }

  bool joined_ = false;
  std::vector<std::int32_t> tokens_;
  SamplingState state_;
  Origin origin_;
};

class BatchSequences {
 public:
  BatchSequences(const PlanOptions& options, int vocab)
      : context_(options.context),
        vocab_(vocab),
        all_(std::size_t(options.sequences)),
        more_(all_.size()) {}

  // As Batch::join().
  Result<int> join(const Sampling& sampling);
  // With rules that have been checked.
  Result<int> join(const SamplingState& rules);
  // One that has joined.
  Result<BatchSequence*> find(int sequence);
  Result<const BatchSequence*> find(int sequence) const;
  BatchSequence& at(int sequence) { return all_[std::size_t(sequence)]; }
  // One whose first positions are this snapshot; -1: there is none.
  int with_origin(std::uint64_t snapshot) const;

  Result<void> check_token(int sequence, std::int32_t token) const;
  // `more` positions fit.
  Result<void> check_room(int sequence, std::int64_t more) const;
  // A step may have these rows.
  Result<void> check_rows(std::span<const BatchRow> rows, int most);

 private:
  const int context_, vocab_;
  std::vector<BatchSequence> all_;
  std::vector<int> more_;  // rows that a step under check has of each sequence
};

}  // namespace lathe
