// Owns decoding with drafts: tokens that are likely to come are decoded together with the one
// before them, and those that would have been chosen anyway are kept.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lathe/runtime/batch.h"

namespace lathe {

// Given the tokens of a sequence, the last of which is about to be decoded, up to `most` that may
// follow. What it returns changes how fast tokens come, never which.
using Drafter = std::function<std::vector<std::int32_t>(std::span<const std::int32_t>, int most)>;

// What followed the last `n` tokens when they stood together before, the latest time, for the
// greatest n from `longest` down to 1 for which they did. Texts that repeat or quote are drafted
// well.
struct LookupDrafts {
  int longest = 4;
  std::vector<std::int32_t> operator()(std::span<const std::int32_t> tokens, int most) const;
};

// What a smaller model of the same vocabulary would choose. It keeps a sequence of `model` that
// follows the one which is drafted for, from which it takes back what was not kept. Hand it to
// generate_with_drafts by std::ref.
class ModelDrafts {
 public:
  // `model` must outlive it, and has room for as many positions as the drafted sequence. Errors:
  // those of Batch::join().
  static Result<std::unique_ptr<ModelDrafts>> open(Batch& model);
  ~ModelDrafts();
  ModelDrafts(const ModelDrafts&) = delete;
  ModelDrafts& operator=(const ModelDrafts&) = delete;

  // Fewer than `most`, or none, where the model's context ends or a step fails.
  std::vector<std::int32_t> operator()(std::span<const std::int32_t> tokens, int most);
  // The failure of the last call, if it had one.
  const Result<void>& outcome() const { return outcome_; }

 private:
  ModelDrafts(Batch& model, int sequence) : model_(model), sequence_(sequence) {}
  Result<void> draft(std::span<const std::int32_t> tokens, int most,
                     std::vector<std::int32_t>& drafts);

  Batch& model_;
  const int sequence_;
  Result<void> outcome_;
};

struct DraftCounts {
  int steps = 0;     // of the batch
  int drafted = 0;   // tokens
  int accepted = 0;  // of those
};

// Decodes `token` in `sequence` and then, each time, the token that was chosen: tokens[i] is what
// steps of one row each would have chosen, whatever the drafts and whether or not the sequence
// draws. A step has at most `most` drafts, and as many rows and positions as there is room for.
// Afterwards the sequence has all tokens but the last. A -1 (see Batch::step) makes what follows it
// meaningless.
//
// In a KV cache of pages the drafts of a step take pages until it has ended: out_of_memory where
// there are too few for them, though a step of one row would have had enough. The sequence then has
// the tokens of the steps before (Batch::length).
Result<DraftCounts> generate_with_drafts(Batch& batch, int sequence, std::int32_t token,
                                         std::span<std::int32_t> tokens, const Drafter& drafter,
                                         int most);

}  // namespace lathe
