// Owns decoding with trees of drafts.
#include "lathe/runtime/draft_trees.h"

#include <fmt/format.h>

#include <algorithm>

namespace lathe {
namespace {

using Tokens = std::vector<std::int32_t>;

// The paths from the root to the leaves, in the order of the leaves.
std::vector<Tokens> paths_of(std::span<const TreeDraft> tree) {
  std::vector<bool> followed(tree.size());
  for (const TreeDraft& draft : tree)
    if (draft.parent >= 0) followed[std::size_t(draft.parent)] = true;
  std::vector<Tokens> paths;
  for (std::size_t leaf = 0; leaf < tree.size(); ++leaf) {
    if (followed[leaf]) continue;
    Tokens path;
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

// The sequences of a run: the caller's, and those that follow it.
class Followers {
 public:
  Followers(Batch& batch, int sequence) : batch_(batch), all_{{sequence, 0}} {}
  ~Followers() {
    // Its own, so there is nothing to refuse.
    for (std::size_t i = 1; i < all_.size(); ++i) static_cast<void>(batch_.leave(all_[i].number));
  }
  Followers(const Followers&) = delete;
  Followers& operator=(const Followers&) = delete;

  int number(std::size_t path) const { return all_[path].number; }
  // Makes `count` sequences, or as many as there is room for, have the first one's `length`
  // positions; how many.
  Result<std::size_t> ready(std::size_t count, int length) {
    while (all_.size() < count) {
      Result<int> joined = batch_.fork(number(0));
      if (!joined && joined.error().code == Code::out_of_range) break;  // all are taken
      LATHE_ASSIGN(const int number, std::move(joined));
      all_.push_back({number, length});
    }
    count = std::min(count, all_.size());
    for (std::size_t i = 1; i < count; ++i) {
      LATHE_TRY(batch_.copy(number(0), number(i), length, all_[i].length));
      all_[i].length = length;
    }
    return count;
  }
  // Gives the first one what another has, up to `length`, of which it has `had`.
  Result<void> keep(std::size_t path, int length, int had) {
    return batch_.copy(number(path), number(0), length, had);
  }

 private:
  struct Sequence {
    int number;
    int length;  // of what it has from the first one
  };
  Batch& batch_;
  std::vector<Sequence> all_;
};

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
  if (most < 0)
    return Error{Code::invalid_argument, fmt::format("A step cannot have {} drafts.", most), {}};
  if (paths < 1 || paths > kMostBatchRows)
    return Error{Code::invalid_argument,
                 fmt::format("A tree cannot have {} paths: 1 to {}.", paths, kMostBatchRows),
                 {}};
  if (!drafter && most > 0)
    return Error{Code::invalid_argument, "There is no function to draft with.", {}};
  LATHE_ASSIGN(const std::span<const std::int32_t> before, batch.tokens(sequence));
  Tokens known(before.begin(), before.end());
  Followers followers(batch, sequence);
  TreeCounts counts;
  std::vector<BatchRow> rows;
  for (std::size_t done = 0; done < tokens.size();) {
    const int length = int(known.size());
    known.push_back(token);
    // Of a path: the sequence's context, and what is still wanted.
    const auto deepest = std::max<std::int64_t>(
        std::min<std::int64_t>(batch.plan().options.context - std::ssize(known),
                               std::ssize(tokens) - std::int64_t(done) - 1),
        0);
    std::vector<TreeDraft> tree;
    if (most > 0 && deepest > 0) tree = drafter(known, most);
    tree.resize(std::min(tree.size(), std::size_t(most)));
    std::vector<Tokens> drafted = paths_of(valid_part(tree, batch.plan().spec.vocab));
    for (Tokens& path : drafted) path.resize(std::min(path.size(), std::size_t(deepest)));
    if (drafted.empty()) drafted.emplace_back();
    drafted.resize(std::min(drafted.size(), std::size_t(paths)));
    LATHE_ASSIGN(const std::size_t ready, followers.ready(drafted.size(), length));
    drafted.resize(ready);

    rows.clear();
    std::vector<std::size_t> first;  // row of each path
    for (std::size_t p = 0; p < drafted.size(); ++p) {
      const int room = batch.rows() - int(rows.size()) - 1;
      if (room < 0) break;
      drafted[p].resize(std::min(drafted[p].size(), std::size_t(room)));
      first.push_back(rows.size());
      rows.push_back({followers.number(p), token});
      for (const std::int32_t draft : drafted[p]) rows.push_back({followers.number(p), draft});
    }
    LATHE_ASSIGN(const std::span<const std::int32_t> chosen, batch.step(rows));
    std::size_t best = 0, kept = 0;
    for (std::size_t p = 0; p < first.size(); ++p) {
      const Tokens& path = drafted[p];
      std::size_t same = 0;
      while (same < path.size() && path[same] == chosen[first[p] + same]) ++same;
      if (same > kept) {
        best = p;
        kept = same;
      }
      counts.drafts.drafted += int(path.size());
    }
    const auto taken = chosen.subspan(first[best], kept + 1);
    std::ranges::copy(taken, tokens.begin() + std::ptrdiff_t(done));
    known.insert(known.end(), taken.begin(), taken.end() - 1);
    token = std::max(taken.back(), 0);
    done += kept + 1;
    ++counts.drafts.steps;
    counts.drafts.accepted += int(kept);
    counts.paths += int(first.size());
    if (best > 0) {
      ++counts.moved;
      LATHE_TRY(followers.keep(best, int(known.size()), length));
    } else {
      LATHE_TRY(batch.rollback(sequence, int(known.size())));
    }
  }
  return counts;
}

}  // namespace lathe
