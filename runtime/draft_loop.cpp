// Owns the loop of decoding with drafts.
#include "runtime/draft_loop.h"

#include <fmt/format.h>

#include <algorithm>

namespace lathe {
namespace {

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

Result<void> check_drafting(int most, bool has_drafter) {
  if (most < 0)
    return Error{Code::invalid_argument, fmt::format("A step cannot have {} drafts.", most), {}};
  if (!has_drafter && most > 0)
    return Error{Code::invalid_argument, "There is no function to draft with.", {}};
  return {};
}

Result<TreeCounts> decode_with_drafts(Batch& batch, int sequence, std::int32_t token,
                                      std::span<std::int32_t> tokens, const PathDrafter& drafter) {
  LATHE_ASSIGN(const std::span<const std::int32_t> before, batch.tokens(sequence));
  std::vector<std::int32_t> known(before.begin(), before.end());
  Followers followers(batch, sequence);
  TreeCounts counts;
  std::vector<BatchRow> rows;
  for (std::size_t done = 0; done < tokens.size();) {
    const int length = int(known.size());
    known.push_back(token);
    // Of a path: the sequence's context, and what is still wanted.
    const auto deepest = std::min<std::int64_t>(batch.plan().options.context - std::ssize(known),
                                                std::ssize(tokens) - std::int64_t(done) - 1);
    DraftPaths drafted;
    if (deepest > 0) drafted = drafter(known, int(deepest));
    for (auto& path : drafted) path.resize(std::min(path.size(), std::size_t(deepest)));
    if (drafted.empty()) drafted.emplace_back();
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
      const std::span<const std::int32_t> path = drafted[p];
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
