// Owns the C functions about what a session does beside decoding. The comments of
// lathe/c/services.h hold.
#include <algorithm>

#include "runtime/c_api/session_values.h"

using namespace lathe;
using namespace lathe::c_api;

lathe_status lathe_session_read_kv(lathe_session* session, const lathe_kv_range* range,
                                   float* values, std::int64_t count) {
  return with_session(session, [&](Session& open) -> Result<void> {
    LATHE_ASSIGN(const KvRange of, kv_range_of(range));
    LATHE_TRY(check_array(values, "values", count));
    return open.read_kv(of, {values, std::size_t(count)});
  });
}

lathe_status lathe_session_write_kv(lathe_session* session, const lathe_kv_range* range,
                                    const float* values, std::int64_t count) {
  return with_session(session, [&](Session& open) -> Result<void> {
    LATHE_ASSIGN(const KvRange of, kv_range_of(range));
    LATHE_TRY(check_array(values, "values", count));
    return open.write_kv(of, {values, std::size_t(count)});
  });
}

lathe_status lathe_session_capture_kv(lathe_session* session, std::int32_t positions,
                                      std::int32_t most, float* keys, float* values,
                                      std::int64_t room, std::int32_t* vectors) {
  return with_session(session, [&](Session& open) -> Result<void> {
    LATHE_NOT_NULL(vectors);
    if (!keys != !values) return null_argument(keys ? "values" : "keys");
    // Nothing but its checks where only the number is wanted.
    LATHE_ASSIGN(const KvCapture capture,
                 open.capture_kv(positions, keys ? most : std::min(most, 0)));
    if (!keys) {
      const std::int64_t heads = open.plan().spec.kv_heads;
      *vectors = std::int32_t(std::min<std::int64_t>(positions * heads, most));
      return {};
    }
    if (room < std::ssize(capture.keys))
      return Error{Code::invalid_argument,
                   fmt::format("There is room for {} floats; the capture has {} of keys and as "
                               "many of values.",
                               room, capture.keys.size()),
                   {}};
    std::ranges::copy(capture.keys, keys);
    std::ranges::copy(capture.values, values);
    *vectors = capture.vectors;
    return {};
  });
}

lathe_status lathe_session_reset(lathe_session* session) {
  return with_session(session, [](Session& open) { return open.reset(); });
}

lathe_status lathe_session_snapshot(lathe_session* session, std::int32_t length,
                                    lathe_snapshot** snapshot) {
  return with_session(session, [&](Session& open) -> Result<void> {
    LATHE_NOT_NULL(snapshot);
    LATHE_ASSIGN(KvSnapshot taken, open.snapshot(length));
    LATHE_ASSIGN(*snapshot, open_handle(std::make_unique<SnapshotObject>(std::move(taken))));
    return {};
  });
}

lathe_status lathe_session_restore(lathe_session* session, const lathe_snapshot* snapshot) {
  return with_session(session, [&](Session& open) -> Result<void> {
    LATHE_ASSIGN(const SnapshotObject* object, find<SnapshotObject>(snapshot));
    return open.restore(object->snapshot);
  });
}

lathe_status lathe_snapshot_get_info(const lathe_snapshot* snapshot, lathe_snapshot_info* info) {
  return guarded([&]() -> Result<void> {
    LATHE_ASSIGN(const SnapshotObject* object, find<SnapshotObject>(snapshot));
    const KvSnapshot& of = object->snapshot;
    return write_struct({.struct_size = 0,
                         .tokens = of.tokens().data(),
                         .length = of.length(),
                         .kv_format = number_of_kv_format(of.format()),
                         .bytes = of.bytes()},
                        info, "lathe_snapshot_info");
  });
}

lathe_status lathe_snapshot_close(lathe_snapshot* snapshot) {
  return guarded([&] { return close<SnapshotObject>(snapshot); });
}

lathe_status lathe_session_read_logits(lathe_session* session, std::int32_t first, float* logits,
                                       std::int32_t count) {
  return with_session(session, [&](Session& open) -> Result<void> {
    LATHE_TRY(check_array(logits, "logits", count));
    return open.read_logits(first, {logits, std::size_t(count)});
  });
}

lathe_status lathe_session_get_likeliest(lathe_session* session, const std::uint32_t* allowed,
                                         std::int32_t words, std::int32_t most,
                                         lathe_scored_token* tokens, std::int32_t* count) {
  return with_session(session, [&](Session& open) -> Result<void> {
    LATHE_ASSIGN(const TokenSet set, token_set_of(allowed, words));
    LATHE_NOT_NULL(tokens);
    LATHE_NOT_NULL(count);
    LATHE_ASSIGN(const std::span<const float> logits, open.logits());
    LATHE_ASSIGN(const std::vector<ScoredToken> best, likeliest_tokens(logits, most, set));
    std::ranges::transform(best, tokens, [](const ScoredToken& token) {
      return lathe_scored_token{token.id, token.logit};
    });
    *count = std::int32_t(best.size());
    return {};
  });
}

lathe_status lathe_session_get_likeliest_of(lathe_session* session, const std::int32_t* ids,
                                            std::int32_t count, std::int32_t* token) {
  return with_session(session, [&](Session& open) -> Result<void> {
    LATHE_TRY(check_array(ids, "ids", count));
    LATHE_NOT_NULL(token);
    LATHE_ASSIGN(const std::span<const float> logits, open.logits());
    LATHE_ASSIGN(*token, likeliest_of(logits, {ids, std::size_t(count)}));
    return {};
  });
}

lathe_status lathe_session_choose(lathe_session* session, const std::uint32_t* allowed,
                                  std::int32_t words, std::int32_t* token) {
  return with_session(session, [&](Session& open) -> Result<void> {
    LATHE_ASSIGN(const TokenSet set, token_set_of(allowed, words));
    LATHE_NOT_NULL(token);
    LATHE_ASSIGN(*token, open.choose(set));
    return {};
  });
}
