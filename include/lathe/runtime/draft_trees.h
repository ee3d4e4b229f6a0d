// Owns decoding with trees of drafts: where more than one token is likely to come, each is followed
// up, and the longest path of those that would have been chosen anyway is kept.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lathe/runtime/batch.h"
#include "lathe/runtime/drafts.h"

namespace lathe {

// A token that may come after another draft of the tree, one before it in the list, or after the
// sequence's last token: parent -1.
struct TreeDraft {
  std::int32_t token = 0;
  int parent = -1;
};
// As a Drafter: up to `most` drafts. What comes after one that is no token, or whose parent is not
// before it, is left out.
using TreeDrafter = std::function<std::vector<TreeDraft>(std::span<const std::int32_t>, int most)>;

// What followed the end of the text when it stood there before, as LookupDrafts has it, the latest
// times that it went on otherwise: up to `paths` of them, which share what they have in common.
struct LookupTrees {
  int longest = 4;
  int paths = 3;
  std::vector<TreeDraft> operator()(std::span<const std::int32_t> tokens, int most) const;
};

struct TreeCounts {
  DraftCounts drafts;  // a token that several paths share counts for each of them
  int paths = 0;       // of all trees, that were decoded
  int moved = 0;       // steps whose kept path was not the first, so that keys and values moved
};

// generate_with_drafts() with trees. The first path from the tree's root to a leaf is decoded in
// `sequence`, each other one in a sequence that joins the batch for the time of the call with all
// that `sequence` has (Batch::fork): a row sees its ancestors alone. Up to `paths` of them, 1 to
// 32; fewer where the batch has no sequences or rows left. The first step of each such sequence
// takes a copy of the whole prefix, later ones what was kept. The drafter is asked for no more than
// that many paths of all rows but one have, whatever `most` says.
Result<TreeCounts> generate_with_trees(Batch& batch, int sequence, std::int32_t token,
                                       std::span<std::int32_t> tokens, const TreeDrafter& drafter,
                                       int most, int paths = 4);

}  // namespace lathe
