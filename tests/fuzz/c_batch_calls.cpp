// Owns the fuzzer's calls about batches, drafts and trees of drafts, and those that sessions and
// batches share: keys and values, snapshots, choices among allowed tokens.
#include <algorithm>
#include <bit>
#include <iterator>
#include <numeric>

#include "tests/fuzz/c_caller.h"

namespace lathe::fuzz {
namespace {

constexpr int kMostRows = 33;  // one more than a step can have

// One that has joined, more often than not.
std::int32_t some_sequence(Caller& c) {
  return c.one_of(8) ? c.one_of(3) : c.number(-1, 4);
}

// Keys and values of some positions, with the room for them.
struct KvChoice {
  lathe_kv_range range = {};
  std::int64_t count = 0;
  float* at = nullptr;
};
void choose_kv(Caller& c, KvChoice& choice) {
  choice.range = {c.number(-1, 2), c.number(-1, 2), c.number(-1, 3), c.number(-1, 4)};
  // As much as a position has, or any count that there is room for.
  choice.count = c.one_of(2) ? 64 * c.one_of(5) : c.input.ConsumeIntegralInRange(-1, 512);
  choice.at = c.room<float>(choice.count);
}

void move_kv(Caller& c) {
  KvChoice choice;
  choose_kv(c, choice);
  if (c.one_of(2))
    return Caller::seen(lathe_session_read_kv(c.any<lathe_session>(), c.place(choice.range),
                                              choice.at, choice.count));
  Caller::seen(lathe_session_write_kv(c.any<lathe_session>(), c.place(choice.range), choice.at,
                                      choice.count));
}

void move_kv_of_batch(Caller& c) {
  KvChoice choice;
  choose_kv(c, choice);
  if (c.one_of(2))
    return Caller::seen(lathe_batch_read_kv(c.any<lathe_batch>(), some_sequence(c),
                                            c.place(choice.range), choice.at, choice.count));
  Caller::seen(lathe_batch_write_kv(c.any<lathe_batch>(), some_sequence(c), c.place(choice.range),
                                    choice.at, choice.count));
}

void capture(Caller& c) {
  const std::int64_t room = c.one_of(2) ? 1024 : c.one_of(1024) - 1;
  const bool sized = c.one_of(2);
  auto* const keys = sized ? c.room<float>(room) : nullptr;
  auto* const values = sized ? c.room<float>(room) : nullptr;
  std::int32_t vectors = 0;
  Caller::seen(lathe_session_capture_kv(c.any<lathe_session>(), c.number(-1, 4), c.number(-1, 9),
                                        keys, values, room, c.place(vectors)));
}

struct Allowed {
  std::array<std::uint32_t, 4> set;
  std::int32_t words;
  const std::uint32_t* at;
};
void choose_allowed(Caller& c, Allowed& allowed) {
  for (std::uint32_t& word : allowed.set) word = c.input.ConsumeIntegral<std::uint32_t>();
  allowed.words = c.one_of(2) ? 3 : c.input.ConsumeIntegralInRange(-1, int(allowed.set.size()));
  allowed.at = c.one_of(8) ? allowed.set.data() : nullptr;
}

void choose(Caller& c) {
  Allowed allowed;
  choose_allowed(c, allowed);
  std::int32_t chosen = 0;
  switch (c.one_of(4)) {
    case 0: {
      const std::int32_t most = c.number(-1, 65);  // above 64 it is refused
      auto* const tokens = c.room<lathe_scored_token>(std::min(most, 65));
      return Caller::seen(lathe_session_get_likeliest(
          c.any<lathe_session>(), allowed.at, allowed.words, most, tokens, c.place(chosen)));
    }
    case 1: {
      const std::array<std::int32_t, 4> ids = {c.token(), c.token(), c.token(), c.token()};
      return Caller::seen(
          lathe_session_get_likeliest_of(c.any<lathe_session>(), c.rarely() ? nullptr : ids.data(),
                                         c.input.ConsumeIntegralInRange(-1, 4), c.place(chosen)));
    }
    case 2: {
      const std::int32_t count = c.input.ConsumeIntegralInRange(-1, 16);
      return Caller::seen(lathe_session_read_logits(c.any<lathe_session>(), c.number(-1, 80),
                                                    c.room<float>(count), count));
    }
    default:
      return Caller::seen(
          lathe_session_choose(c.any<lathe_session>(), allowed.at, allowed.words, c.place(chosen)));
  }
}

lathe_sampling some_sampling(Caller& c) {
  auto sampling = api::sized<lathe_sampling>();
  for (float* value :
       {&sampling.temperature, &sampling.top_p, &sampling.min_p, &sampling.repeat_penalty}) {
    const auto bits = c.input.ConsumeIntegral<std::uint32_t>();
    *value =
        bits % 2 ? c.input.ConsumeFloatingPointInRange(0.0f, 2.0f) : std::bit_cast<float>(bits);
  }
  sampling.top_k = c.number(-1, 65);
  sampling.repeat_last = c.number(-1, 257);
  sampling.seed = c.input.ConsumeIntegral<std::uint64_t>();
  c.resize(sampling);
  return sampling;
}

// How drafts are made: of tokens that the input chose before, as many as it said.
struct Drafts {
  std::array<std::int32_t, kMostTokens> tokens, parents;
  std::int32_t count;
};
std::int32_t draft(void* user, const std::int32_t* tokens, std::int32_t count, std::int32_t most,
                   std::int32_t* drafts) {
  const auto& from = *static_cast<const Drafts*>(user);
  require(tokens && count > 0 && most >= 0);
  std::copy_n(from.tokens.begin(), std::min(most, kMostTokens), drafts);
  return from.count;
}
std::int32_t draft_tree(void* user, const std::int32_t* tokens, std::int32_t count,
                        std::int32_t most, std::int32_t* drafts, std::int32_t* parents) {
  const auto& from = *static_cast<const Drafts*>(user);
  std::copy_n(from.parents.begin(), std::min(most, kMostTokens), parents);
  return draft(user, tokens, count, most, drafts);
}

void generate_with_drafts(Caller& c) {
  Drafts drafts = {c.tokens(), {}, c.number(-1, kMostTokens)};
  for (std::int32_t i = 0; i < kMostTokens; ++i) drafts.parents[std::size_t(i)] = c.number(-1, i);
  auto options = api::sized<lathe_draft_options>();
  options.drafter_user = &drafts;
  if (c.one_of(2)) options.drafter = draft;
  options.most = c.number(-1, kMostTokens);
  options.longest = c.number(-1, 5);
  options.paths = c.one_of(2) ? 0 : c.number(-1, 4);
  if (options.paths > 1) options.drafter = nullptr;
  if (options.paths > 1 ? c.one_of(2) != 0 : c.rarely()) options.tree_drafter = draft_tree;
  c.resize(options);
  auto counts = api::sized<lathe_draft_counts>();
  c.resize(counts);
  const std::int32_t count = c.input.ConsumeIntegralInRange(-1, kMostTokens);
  const lathe_status status = lathe_batch_generate_with_drafts(
      c.any<lathe_batch>(), some_sequence(c), c.token(), c.rarely() ? nullptr : &options,
      c.room<std::int32_t>(count), count, c.place(counts));
  Caller::seen(status);
}

void step(Caller& c) {
  std::array<lathe_batch_row, kMostRows> rows;
  const std::int32_t count = c.one_of(4) ? c.input.ConsumeIntegralInRange(0, 4)
                                         : c.input.ConsumeIntegralInRange(-1, kMostRows);
  std::int32_t sequence = some_sequence(c), next = c.token();
  for (lathe_batch_row& row : rows) {
    if (&row - rows.data() < 4) sequence = some_sequence(c), next = c.token();
    row = {sequence, next};
  }
  Caller::seen(lathe_batch_step(c.any<lathe_batch>(), c.rarely() ? nullptr : rows.data(), count,
                                c.room<std::int32_t>(count)));
}

void move_sequences(Caller& c) {
  std::int32_t sequence = 0;
  switch (c.one_of(6)) {
    case 0:
    case 1: {
      const lathe_sampling sampling = some_sampling(c);
      return Caller::seen(lathe_batch_join(c.any<lathe_batch>(), c.one_of(2) ? nullptr : &sampling,
                                           c.place(sequence)));
    }
    case 2:
      return Caller::seen(
          lathe_batch_fork(c.any<lathe_batch>(), some_sequence(c), c.place(sequence)));
    case 3:
      return Caller::seen(lathe_batch_leave(c.any<lathe_batch>(), some_sequence(c)));
    case 4:
      return Caller::seen(
          lathe_batch_rollback(c.any<lathe_batch>(), some_sequence(c), c.number(-1, kMostContext)));
    default:
      return Caller::seen(lathe_batch_copy(c.any<lathe_batch>(), some_sequence(c), some_sequence(c),
                                           c.number(-1, kMostContext)));
  }
}

void ask(Caller& c) {
  std::int32_t count = 0;
  switch (c.one_of(7)) {
    case 0:
      return c.fill<lathe_session_info>(
          [&](auto* info) { return lathe_batch_get_info(c.any<lathe_batch>(), info); });
    case 1: {
      const char* note = nullptr;
      return Caller::seen(
          lathe_batch_get_note(c.any<lathe_batch>(), c.number(-1, 3), c.place(note)));
    }
    case 2:
      return c.fill<lathe_choice>([&](auto* to) {
        return lathe_batch_get_choice(c.any<lathe_batch>(), c.number(-1, 20), to);
      });
    case 3:
      return Caller::seen(
          lathe_batch_get_length(c.any<lathe_batch>(), some_sequence(c), c.place(count)));
    case 4: {
      const std::int32_t* tokens = nullptr;
      return Caller::seen(lathe_batch_get_tokens(c.any<lathe_batch>(), some_sequence(c),
                                                 c.place(tokens), c.place(count)));
    }
    case 5: {
      const float* logits = nullptr;
      return Caller::seen(lathe_batch_get_logits(c.any<lathe_batch>(), c.number(-1, 4),
                                                 c.place(logits), c.place(count)));
    }
    default: {
      Allowed allowed;
      choose_allowed(c, allowed);
      return Caller::seen(lathe_batch_choose(c.any<lathe_batch>(), c.number(-1, 4), allowed.at,
                                             allowed.words, c.place(count)));
    }
  }
}

void snapshots_of_batch(Caller& c) {
  if (c.one_of(2))
    return c.open<lathe_snapshot>([&](lathe_snapshot** out) {
      return lathe_batch_snapshot(c.any<lathe_batch>(), some_sequence(c),
                                  c.number(-1, kMostContext), out);
    });
  Caller::seen(
      lathe_batch_restore(c.any<lathe_batch>(), some_sequence(c), c.any<lathe_snapshot>()));
}

void open_batch(Caller& c) {
  SessionChoice choice;
  choose_session(c, choice);
  if (c.one_of(8)) {  // most of what a session may have a batch refuses
    choice.options.executor = c.one_of(2) ? LATHE_EXECUTOR_AUTO : LATHE_EXECUTOR_EAGER;
    choice.options.device = c.any<lathe_device>();
    choice.options.fusion = LATHE_FUSION_AUTOMATIC;
    choice.options.kv_format = c.one_of(3);
    choice.options.context = 1 + c.one_of(kMostContext);
    choice.options.parity = 0;
    choice.options.time_steps = 0;
    choice.options.part = nullptr;
    choice.options.tuning = nullptr;
  }
  auto options = api::sized<lathe_batch_options>();
  options.session = c.rarely() ? nullptr : &choice.options;
  options.sequences = c.number(-1, 4);
  options.rows = c.number(-1, 9);
  if (c.one_of(2)) options.kv_pages = c.number(-1, 9);
  c.resize(options);
  c.open<lathe_batch>([&](lathe_batch** out) {
    return lathe_batch_open(c.any<lathe_model>(), c.rarely() ? nullptr : &options, out);
  });
}

}  // namespace

void open_usual_batch(Caller& c) {
  auto session = api::sized<lathe_session_options>();
  session.executor = c.one_of(2) ? LATHE_EXECUTOR_GRAPH : LATHE_EXECUTOR_EAGER;
  session.kv_format = c.one_of(3);
  session.context = 32;
  session.device = c.last<lathe_device>();
  auto options = api::sized<lathe_batch_options>();
  options.session = &session;
  options.sequences = 4;
  options.rows = 8;
  options.kv_pages = c.one_of(6);  // 8 would be enough for all
  c.open<lathe_batch>(
      [&](lathe_batch** out) { return lathe_batch_open(c.last<lathe_model>(), &options, out); });
  std::int32_t sequence = 0;
  for (int i = 0; i < 2; ++i)
    Caller::seen(lathe_batch_join(c.last<lathe_batch>(), nullptr, &sequence));
  // What later calls share, copy and take back: keys and values of more than a page.
  std::array<std::int32_t, 24> text;
  std::iota(text.begin(), text.end(), 1);
  const std::int32_t length = c.one_of(int(text.size()) + 1);
  if (length == 0) return;
  Caller::seen(lathe_batch_feed(c.last<lathe_batch>(), 0, text.data(), length));
  if (c.one_of(2))
    c.open<lathe_snapshot>([&](lathe_snapshot** out) {
      return lathe_batch_snapshot(c.last<lathe_batch>(), 0, length, out);
    });
}

void call_services(Caller& c) {
  switch (c.one_of(8)) {
    case 0:
      return move_kv(c);
    case 1:
      return capture(c);
    case 2:
      return c.open<lathe_snapshot>([&](lathe_snapshot** out) {
        return lathe_session_snapshot(c.any<lathe_session>(), c.number(-1, kMostContext), out);
      });
    case 3:
      return Caller::seen(lathe_session_restore(c.any<lathe_session>(), c.any<lathe_snapshot>()));
    case 4:
      return c.fill<lathe_snapshot_info>(
          [&](auto* info) { return lathe_snapshot_get_info(c.any<lathe_snapshot>(), info); });
    case 5:
      return Caller::seen(lathe_session_reset(c.any<lathe_session>()));
    case 6: {
      const lathe_sampling sampling = some_sampling(c);
      return Caller::seen(
          lathe_session_set_sampling(c.any<lathe_session>(), c.one_of(2) ? &sampling : nullptr));
    }
    default:
      return choose(c);
  }
}

void call_batches(Caller& c) {
  switch (c.one_of(10)) {
    case 0:
      return open_batch(c);
    case 1:
    case 2:
      return move_sequences(c);
    case 3: {
      const auto tokens = c.tokens();
      return Caller::seen(lathe_batch_feed(c.any<lathe_batch>(), some_sequence(c),
                                           c.one_of(8) ? tokens.data() : nullptr,
                                           c.input.ConsumeIntegralInRange(-1, kMostTokens)));
    }
    case 4:
    case 5:
      return step(c);
    case 6:
      return generate_with_drafts(c);
    case 7:
      return move_kv_of_batch(c);
    case 8:
      return snapshots_of_batch(c);
    default:
      return ask(c);
  }
}

}  // namespace lathe::fuzz
