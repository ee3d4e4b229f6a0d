// Owns the loop of decoding with drafts, which may go several ways.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lathe/runtime/draft_trees.h"

namespace lathe {

// Tokens that may follow a sequence's last one, in each of the ways in which they may go on.
using DraftPaths = std::vector<std::vector<std::int32_t>>;
// Given the tokens of a sequence, the last of which is about to be decoded, the paths to try; what
// a path has beyond `deepest`, which is at least 1, is left out. All are tokens of the vocabulary.
using PathDrafter = std::function<DraftPaths(std::span<const std::int32_t>, int deepest)>;

// invalid_argument: why steps cannot have up to `most` drafts.
Result<void> check_drafting(int most, bool has_drafter);

// What generate_with_trees() says of its paths, which `drafter` gives.
Result<TreeCounts> decode_with_drafts(Batch& batch, int sequence, std::int32_t token,
                                      std::span<std::int32_t> tokens, const PathDrafter& drafter);

}  // namespace lathe
