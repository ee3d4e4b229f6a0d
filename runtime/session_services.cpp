// Owns what a session does beside decoding: logits and choices for the host, and the keys and
// values of its cache.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/no_memory.h"
#include "runtime/session_base.h"

namespace lathe {

Result<void> SessionBase::read_logits(int first, std::span<float> to) {
  LATHE_TRY(check_logits());
  if (first < 0 || first + std::int64_t(to.size()) > plan_.spec.vocab)
    return Error{Code::out_of_range,
                 fmt::format("There are no {} logits from {} on: the vocabulary has {}.", to.size(),
                             first, plan_.spec.vocab),
                 {}};
  if (to.empty()) return {};
  return fetch_logits(first, to);
}

Result<std::int32_t> SessionBase::choose(TokenSet allowed) {
  LATHE_TRY(check_token_set(allowed, plan_.spec.vocab));
  LATHE_TRY(check_logits());
  if (stepped_to_ != length_)
    return Error{Code::invalid_argument,
                 fmt::format("There is nothing to choose after: the last step left {} positions, "
                             "and now there are {}.",
                             stepped_to_, length_),
                 {}};
  LATHE_ASSIGN(const std::span<const float> values, logits());
  ChoicePoint at{tokens_[std::size_t(length_ - 1)], length_ - 1, sampling_state(sampling_)};
  set_recent(at.rules, length_ - 1);
  if (!host_choice_) host_choice_.emplace(plan_);
  return host_choice_->choose(values, at, allowed);
}

Result<int> SessionBase::generate_constrained(std::int32_t token, std::span<std::int32_t> tokens,
                                              std::span<const std::int32_t> stops,
                                              const Constraint& constraint,
                                              const std::function<void(std::int32_t)>& each,
                                              const std::function<bool()>& cancelled) {
  if (!constraint)
    return Error{
        Code::invalid_argument, "There is no function that says which tokens are allowed.", {}};
  LATHE_TRY(check_runs());
  LATHE_TRY(check_stops(stops));
  if (tokens.empty()) return 0;
  LATHE_TRY(check_step(token, std::int64_t(tokens.size())));
  std::vector<std::uint32_t> allowed;
  LATHE_TRY(or_no_memory("a set of tokens", [&]() -> Result<void> {
    allowed.resize(token_set_words(plan_.spec.vocab));
    return {};
  }));
  std::size_t count = 0;
  while (count < tokens.size() && !(cancelled && cancelled())) {
    LATHE_TRY(step(token));
    std::ranges::fill(allowed, 0u);
    constraint(tokens.first(count), allowed);
    LATHE_ASSIGN(token, choose(allowed));
    tokens[count++] = token;
    if (each) each(token);
    if (token < 0 || std::ranges::find(stops, token) != stops.end()) break;
  }
  return int(count);
}

KvAccess SessionBase::kv() {
  return KvAccess(
      plan_, addresses(), {}, std::span(tokens_).first(std::size_t(length_)),
      [this](std::span<const KvCopy> copies, KvMove move) { return move_kv(copies, move); });
}

Result<void> SessionBase::reset() {
  LATHE_TRY(rollback(0));
  stepped_ = false;
  return kv().clear();
}

Result<void> SessionBase::read_kv(const KvRange& range, std::span<float> values) {
  return kv().read(range, values);
}

Result<void> SessionBase::write_kv(const KvRange& range, std::span<const float> values) {
  return kv().write(range, values);
}

Result<KvCapture> SessionBase::capture_kv(int positions, int most) {
  return kv().capture(positions, most);
}

Result<KvSnapshot> SessionBase::snapshot(int length) {
  return kv().snapshot(length, *file_);
}

Result<void> SessionBase::restore(const KvSnapshot& snapshot) {
  const KvAccess caches = kv();
  LATHE_TRY(caches.check(snapshot, *file_));
  length_ = 0;
  stepped_ = false;
  LATHE_TRY(caches.restore(snapshot));
  std::ranges::copy(snapshot.tokens(), tokens_.begin());
  LATHE_TRY(write_recent(snapshot.length()));
  length_ = snapshot.length();
  return {};
}

}  // namespace lathe
