// Owns decoding with drafts.
#include "lathe/runtime/drafts.h"

#include <algorithm>

#include "runtime/draft_loop.h"

namespace lathe {

std::vector<std::int32_t> LookupDrafts::operator()(std::span<const std::int32_t> tokens,
                                                   int most) const {
  const std::int64_t count = std::ssize(tokens);
  for (std::int64_t n = std::min<std::int64_t>(longest, count - 1); n > 0 && most > 0; --n) {
    const auto end = tokens.last(std::size_t(n));
    for (std::int64_t at = count - n - 1; at >= 0; --at) {
      if (!std::ranges::equal(tokens.subspan(std::size_t(at), std::size_t(n)), end)) continue;
      // Behind the last token what is drafted goes on as it does: a period goes round.
      std::vector<std::int32_t> drafts;
      for (std::int64_t i = at + n; std::ssize(drafts) < most; ++i)
        drafts.push_back(i < count ? tokens[std::size_t(i)] : drafts[std::size_t(i - count)]);
      return drafts;
    }
  }
  return {};
}

Result<std::unique_ptr<ModelDrafts>> ModelDrafts::open(Batch& model) {
  LATHE_ASSIGN(const int sequence, model.join());
  return std::unique_ptr<ModelDrafts>(new ModelDrafts(model, sequence));
}

ModelDrafts::~ModelDrafts() {
  static_cast<void>(model_.leave(sequence_));  // its own, so there is nothing to refuse
}

std::vector<std::int32_t> ModelDrafts::operator()(std::span<const std::int32_t> tokens, int most) {
  std::vector<std::int32_t> drafts;
  outcome_ = draft(tokens, most, drafts);
  return drafts;
}

Result<void> ModelDrafts::draft(std::span<const std::int32_t> tokens, int most,
                                std::vector<std::int32_t>& drafts) {
  if (tokens.empty()) return {};
  const auto before = tokens.first(tokens.size() - 1);
  LATHE_ASSIGN(const std::span<const std::int32_t> had, model_.tokens(sequence_));
  const auto common = std::ranges::mismatch(had, before).in2 - before.begin();
  LATHE_TRY(model_.rollback(sequence_, int(common)));
  LATHE_TRY(model_.feed(sequence_, before.subspan(std::size_t(common))));
  std::int32_t token = tokens.back();
  const std::int64_t room = model_.plan().options.context - std::ssize(before);
  for (std::int64_t i = 0; i < std::min<std::int64_t>(most, room); ++i) {
    const BatchRow row{sequence_, token};
    LATHE_ASSIGN(const std::span<const std::int32_t> chosen, model_.step({&row, 1}));
    token = chosen.front();
    if (token < 0) break;
    drafts.push_back(token);
  }
  return {};
}

Result<DraftCounts> generate_with_drafts(Batch& batch, int sequence, std::int32_t token,
                                         std::span<std::int32_t> tokens, const Drafter& drafter,
                                         int most) {
  LATHE_TRY(check_drafting(most, bool(drafter)));
  const auto drafted = [&](std::span<const std::int32_t> known, int deepest) {
    const int room = std::min({most, batch.rows() - 1, deepest});
    std::vector<std::int32_t> path;
    if (room > 0) path = drafter(known, room);
    path.resize(std::min(path.size(), std::size_t(room)));
    // One that is no token would be refused, and the step with it.
    const auto wrong = std::ranges::find_if(
        path, [&](std::int32_t draft) { return draft < 0 || draft >= batch.plan().spec.vocab; });
    path.erase(wrong, path.end());
    return DraftPaths{std::move(path)};
  };
  LATHE_ASSIGN(const TreeCounts counts,
               decode_with_drafts(batch, sequence, token, tokens, drafted));
  return counts.drafts;
}

}  // namespace lathe
