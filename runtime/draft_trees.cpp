// Owns decoding with trees of drafts.
#include "lathe/runtime/draft_trees.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/draft_loop.h"

namespace lathe {
namespace {

// The paths from the root to the leaves, in the order of the leaves.
DraftPaths paths_of(std::span<const TreeDraft> tree) {
  std::vector<bool> followed(tree.size());
  for (const TreeDraft& draft : tree)
    if (draft.parent >= 0) followed[std::size_t(draft.parent)] = true;
  DraftPaths paths;
  for (std::size_t leaf = 0; leaf < tree.size(); ++leaf) {
    if (followed[leaf]) continue;
    std::vector<std::int32_t> path;
    for (int at = int(leaf); at >= 0; at = tree[std::size_t(at)].parent)
      path.push_back(tree[std::size_t(at)].token);
    std::ranges::reverse(path);
    paths.push_back(std::move(path));
  }
  return paths;
}

// The drafts up to the first that cannot be one.
std::span<const TreeDraft> valid_part(std::span<const TreeDraft> tree, int vocab) {
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const TreeDraft& draft = tree[i];
    if (draft.token < 0 || draft.token >= vocab || draft.parent < -1 || draft.parent >= int(i))
      return tree.first(i);
  }
  return tree;
}

}  // namespace

std::vector<TreeDraft> LookupTrees::operator()(std::span<const std::int32_t> tokens,
                                               int most) const {
  std::vector<TreeDraft> tree;
  const std::int64_t count = std::ssize(tokens);
  int found = 0;
  const int each = paths > 0 ? std::max(most / paths, 1) : 0;
  for (std::int64_t n = std::min<std::int64_t>(longest, count - 1); n > 0; --n) {
    const auto end = tokens.last(std::size_t(n));
    for (std::int64_t at = count - n - 1; at >= 0 && found < paths; --at) {
      if (!std::ranges::equal(tokens.subspan(std::size_t(at), std::size_t(n)), end)) continue;
      // Down the tree as far as it goes the same way; what is left is a path of its own.
      int parent = -1;
      bool is_new = false;
      for (std::int64_t i = at + n; i < count && i < at + n + each; ++i) {
        const std::int32_t token = tokens[std::size_t(i)];
        const auto same = std::ranges::find_if(tree, [&](const TreeDraft& draft) {
          return draft.token == token && draft.parent == parent;
        });
        if (same != tree.end()) {
          parent = int(same - tree.begin());
          continue;
        }
        if (std::ssize(tree) >= most) return tree;
        is_new = true;
        tree.push_back({token, parent});
        parent = int(tree.size()) - 1;
      }
      if (is_new) ++found;
    }
  }
  return tree;
}

Result<TreeCounts> generate_with_trees(Batch& batch, int sequence, std::int32_t token,
                                       std::span<std::int32_t> tokens, const TreeDrafter& drafter,
                                       int most, int paths) {
  LATHE_TRY(check_drafting(most, bool(drafter)));
  if (paths < 1 || paths > kMostBatchRows)
    return Error{Code::invalid_argument,
                 fmt::format("A tree cannot have {} paths: 1 to {}.", paths, kMostBatchRows),
                 {}};
  most = std::min(most, paths * (batch.rows() - 1));  // for others there is never a row
  const auto drafted = [&](std::span<const std::int32_t> known, int) {
    std::vector<TreeDraft> tree;
    if (most > 0) tree = drafter(known, most);
    tree.resize(std::min(tree.size(), std::size_t(most)));
    DraftPaths all = paths_of(valid_part(tree, batch.plan().spec.vocab));
    all.resize(std::min(all.size(), std::size_t(paths)));
    return all;
  };
  return decode_with_drafts(batch, sequence, token, tokens, drafted);
}

}  // namespace lathe
