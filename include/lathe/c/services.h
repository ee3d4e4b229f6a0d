// Owns what a session does beside decoding: its keys and values for the host, snapshots of a
// prefix, likeliest tokens, and choices among those that are allowed. docs/services.md shows their
// use.
//
// lathe/c/base.h has the rules of all functions. All of these wait for the session's steps.
#ifndef LATHE_C_SERVICES_H
#define LATHE_C_SERVICES_H

#include "lathe/c/base.h"
#include "lathe/c/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LATHE_PART_KEYS = 0, LATHE_PART_VALUES = 1 };

// Positions `first` to `first + positions - 1` of one layer, which must be there. Their numbers are
// f32 whatever the cache's format: by position, then KV head, then element of the head. Keys are as
// the cache has them: normed and rotated.
typedef struct lathe_kv_range {
  int32_t part;  // LATHE_PART_...
  int32_t layer;
  int32_t first;
  int32_t positions;
} lathe_kv_range;

// `count` is positions x kv_heads x head_dim.
LATHE_API lathe_status lathe_session_read_kv(lathe_session* session, const lathe_kv_range* range,
                                             float* values, int64_t count);
// Rounds to the cache's format. The steps from the next one on attend to what was written.
LATHE_API lathe_status lathe_session_write_kv(lathe_session* session, const lathe_kv_range* range,
                                              const float* values, int64_t count);
// Of each layer the keys and the values of the first `positions`, a vector for each position and KV
// head, at most `most`: *vectors is how many. Writes layers x vectors x head_dim floats to `keys`
// and as many to `values`, each with room for `room`; with both NULL only *vectors.
LATHE_API lathe_status lathe_session_capture_kv(lathe_session* session, int32_t positions,
                                                int32_t most, float* keys, float* values,
                                                int64_t room, int32_t* vectors);
// Forgets all positions and the last step's logits, and clears the KV cache. Its memory stays the
// session's: all of it is taken when the session opens.
LATHE_API lathe_status lathe_session_reset(lathe_session* session);

// The tokens of a prefix with their keys and values, in host memory. Never changes; any number of
// threads at once. Outlives the session it was taken of.
typedef struct lathe_snapshot lathe_snapshot;

typedef struct lathe_snapshot_info {
  size_t struct_size;
  const int32_t* tokens;
  int32_t length;
  int32_t
      kv_format;  // LATHE_KV_...; LATHE_KV_F32 of a cache of atoms, whose words are `bytes` long
  int64_t bytes;  // of its keys and values
} lathe_snapshot_info;

LATHE_API lathe_status lathe_session_snapshot(lathe_session* session, int32_t length,
                                              lathe_snapshot** snapshot);
// Puts it in place of all positions; there are no logits until the next step. Of this or another
// session or batch of the same model and KV format; else LATHE_INVALID_ARGUMENT, and nothing
// changes. A failure on the way leaves no positions.
LATHE_API lathe_status lathe_session_restore(lathe_session* session,
                                             const lathe_snapshot* snapshot);
LATHE_API lathe_status lathe_snapshot_get_info(const lathe_snapshot* snapshot,
                                               lathe_snapshot_info* info);
LATHE_API lathe_status lathe_snapshot_close(lathe_snapshot* snapshot);

// The last step's logits from `first` on, `count` of them, into the caller's memory.
LATHE_API lathe_status lathe_session_read_logits(lathe_session* session, int32_t first,
                                                 float* logits, int32_t count);

typedef struct lathe_scored_token {
  int32_t token;
  float logit;
} lathe_scored_token;

// In what follows `allowed` says which tokens may be chosen: token i is bit i % 32 of word i / 32,
// and there are as many words as the vocabulary takes. With none (NULL, 0) every token is; with
// words and no bit none is. Equal logits stand in the order of their ids; NaN is never chosen.

// The allowed tokens with the `most` greatest logits, 1 to 64, greatest first; *count is how many
// there are.
LATHE_API lathe_status lathe_session_get_likeliest(lathe_session* session, const uint32_t* allowed,
                                                   int32_t words, int32_t most,
                                                   lathe_scored_token* tokens, int32_t* count);
// The likeliest of a list; -1 when it is empty, or all their logits are NaN.
LATHE_API lathe_status lathe_session_get_likeliest_of(lathe_session* session, const int32_t* ids,
                                                      int32_t count, int32_t* token);
// What lathe_session_get_sampled would say if only the allowed tokens were there, by the rules that
// hold now and the step's own draw; -1: none can be chosen. Of the last step, with no rollback
// after it.
LATHE_API lathe_status lathe_session_choose(lathe_session* session, const uint32_t* allowed,
                                            int32_t words, int32_t* token);

#ifdef __cplusplus
}
#endif

#endif  // LATHE_C_SERVICES_H
