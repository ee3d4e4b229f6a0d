// Owns decoding with drafts.
#include "lathe/runtime/drafts.h"

#include <fmt/format.h>

#include <algorithm>

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
  if (most < 0)
    return Error{Code::invalid_argument, fmt::format("A step cannot have {} drafts.", most), {}};
  if (!drafter && most > 0)
    return Error{Code::invalid_argument, "There is no function to draft with.", {}};
  LATHE_ASSIGN(const std::span<const std::int32_t> before, batch.tokens(sequence));
  std::vector<std::int32_t> known(before.begin(), before.end());
  const std::int64_t context = batch.plan().options.context;
  DraftCounts counts;
  std::vector<BatchRow> rows;
  for (std::size_t done = 0; done < tokens.size();) {
    known.push_back(token);
    const std::int64_t room =
        std::min<std::int64_t>({most, batch.rows() - 1, context - std::ssize(known),
                                std::ssize(tokens) - std::int64_t(done) - 1});
    std::vector<std::int32_t> drafts;
    if (room > 0) drafts = drafter(known, int(room));
    drafts.resize(std::min(drafts.size(), std::size_t(std::max<std::int64_t>(room, 0))));
    // One that is no token would be refused, and the step with it.
    const auto wrong = std::ranges::find_if(
        drafts, [&](std::int32_t draft) { return draft < 0 || draft >= batch.plan().spec.vocab; });
    drafts.erase(wrong, drafts.end());

    rows.assign(1, {sequence, token});
    for (const std::int32_t draft : drafts) rows.push_back({sequence, draft});
    LATHE_ASSIGN(const std::span<const std::int32_t> chosen, batch.step(rows));
    std::size_t kept = 0;
    while (kept < drafts.size() && drafts[kept] == chosen[kept]) ++kept;
    std::ranges::copy(chosen.first(kept + 1), tokens.begin() + std::ptrdiff_t(done));
    known.insert(known.end(), drafts.begin(), drafts.begin() + std::ptrdiff_t(kept));
    token = std::max(chosen[kept], 0);
    done += kept + 1;
    ++counts.steps;
    counts.drafted += int(drafts.size());
    counts.accepted += int(kept);
    LATHE_TRY(batch.rollback(sequence, int(known.size())));
  }
  return counts;
}

}  // namespace lathe
