// Owns batches in the C interface: several sequences of one model, each weight read once for all.
//
// lathe/c/base.h has the rules of all functions, docs/batches.md what a batch takes and gives.
#ifndef LATHE_C_BATCH_H
#define LATHE_C_BATCH_H

#include "lathe/c/base.h"
#include "lathe/c/engine.h"
#include "lathe/c/services.h"

#ifdef __cplusplus
extern "C" {
#endif

// Sequences that join and leave as they please, on a GPU. One thread at a time. A function that
// names a sequence which has not joined is LATHE_INVALID_ARGUMENT.
typedef struct lathe_batch lathe_batch;

typedef struct lathe_batch_options {
  size_t struct_size;
  // As of a session; NULL: all defaults. context: positions of each sequence. executor: eager,
  // graph or auto. fusion is full whatever it says.
  const lathe_session_options* session;
  int32_t sequences;  // that can be there at once, up to 4096; 0: 8
  int32_t rows;       // tokens of a step at most, up to 32; 0: 32
  // Above 0: the KV cache is so many pages of 16 positions, which sequences get as they grow and
  // give back; what wants more than are free is LATHE_OUT_OF_MEMORY, before anything is launched.
  // 0: each sequence has room for `context` positions from the beginning.
  int32_t kv_pages;
  int32_t reserved;  // 0
} lathe_batch_options;

// One token of a step.
typedef struct lathe_batch_row {
  int32_t sequence;
  int32_t token;
} lathe_batch_row;

// options may be NULL. LATHE_NOT_ELIGIBLE, with the reason, where the model or the device has no
// fused kernels. What lathe_session_open says of handles, files and waiting holds here.
LATHE_API lathe_status lathe_batch_open(const lathe_model* model,
                                        const lathe_batch_options* options, lathe_batch** batch);
// As lathe_session_close.
LATHE_API lathe_status lathe_batch_close(lathe_batch* batch);
// context: of each sequence; launches: of a step of the most rows; kv_pages_used: by now.
LATHE_API lathe_status lathe_batch_get_info(const lathe_batch* batch, lathe_session_info* info);
LATHE_API lathe_status lathe_batch_get_note(const lathe_batch* batch, int32_t index,
                                            const char** note);
// 0 <= index < choice_count; texts are valid while the batch is.
LATHE_API lathe_status lathe_batch_get_choice(const lathe_batch* batch, int32_t index,
                                              lathe_choice* choice);

// An empty sequence, whose tokens are chosen so; NULL: the likeliest. LATHE_OUT_OF_RANGE when all
// are taken.
LATHE_API lathe_status lathe_batch_join(lathe_batch* batch, const lathe_sampling* sampling,
                                        int32_t* sequence);
// The same with the rules and all positions of a sequence. Waits for nothing.
LATHE_API lathe_status lathe_batch_fork(lathe_batch* batch, int32_t sequence, int32_t* other);
LATHE_API lathe_status lathe_batch_leave(lathe_batch* batch, int32_t sequence);
// Takes tokens without choosing any: all of a prompt but its last. Waits for nothing.
LATHE_API lathe_status lathe_batch_feed(lathe_batch* batch, int32_t sequence, const int32_t* tokens,
                                        int32_t count);
// Takes a token of each row. Rows of one sequence are neighbouring positions. All are checked
// before anything is launched; waits for the end. chosen[i] is the token chosen after row i, -1
// when every logit is NaN.
LATHE_API lathe_status lathe_batch_step(lathe_batch* batch, const lathe_batch_row* rows,
                                        int32_t count, int32_t* chosen);
// Forgets all positions from `length` on.
LATHE_API lathe_status lathe_batch_rollback(lathe_batch* batch, int32_t sequence, int32_t length);
// Gives `to` the first `length` positions of `from` in place of what it had.
LATHE_API lathe_status lathe_batch_copy(lathe_batch* batch, int32_t from, int32_t to,
                                        int32_t length);
LATHE_API lathe_status lathe_batch_get_length(const lathe_batch* batch, int32_t sequence,
                                              int32_t* length);
// By position. They live until the next call that changes the sequence.
LATHE_API lathe_status lathe_batch_get_tokens(const lathe_batch* batch, int32_t sequence,
                                              const int32_t** tokens, int32_t* count);

// Of a row of the last step, with no feed after it. The floats live until the next call.
LATHE_API lathe_status lathe_batch_get_logits(lathe_batch* batch, int32_t row, const float** logits,
                                              int32_t* count);
// lathe_session_choose of a row of the last step, by the rules that the step had.
LATHE_API lathe_status lathe_batch_choose(lathe_batch* batch, int32_t row, const uint32_t* allowed,
                                          int32_t words, int32_t* token);

// As those of a session.
LATHE_API lathe_status lathe_batch_read_kv(lathe_batch* batch, int32_t sequence,
                                           const lathe_kv_range* range, float* values,
                                           int64_t count);
LATHE_API lathe_status lathe_batch_write_kv(lathe_batch* batch, int32_t sequence,
                                            const lathe_kv_range* range, const float* values,
                                            int64_t count);
LATHE_API lathe_status lathe_batch_snapshot(lathe_batch* batch, int32_t sequence, int32_t length,
                                            lathe_snapshot** snapshot);
LATHE_API lathe_status lathe_batch_restore(lathe_batch* batch, int32_t sequence,
                                           const lathe_snapshot* snapshot);

// Given the tokens of a sequence, the last of which is about to be decoded, writes up to `most`
// that may follow to `drafts` and returns how many. What it writes changes how fast tokens come,
// never which. Must not call Lathe with that batch.
typedef int32_t (*lathe_drafter)(void* user, const int32_t* tokens, int32_t count, int32_t most,
                                 int32_t* drafts);

// The same of a tree: parents[i] is which draft drafts[i] comes after, one before it, or -1: the
// last token.
typedef int32_t (*lathe_tree_drafter)(void* user, const int32_t* tokens, int32_t count,
                                      int32_t most, int32_t* drafts, int32_t* parents);

typedef struct lathe_draft_options {
  size_t struct_size;
  lathe_drafter drafter;  // NULL: what followed the end of the text when it stood there before
  void* drafter_user;     // of either drafter
  int32_t most;           // drafts of a step; 0: 7
  int32_t longest;        // of an end that is looked up; 0: 4
  // Above 1, up to 32: trees of drafts, of which each path but the first takes a sequence that is
  // free for the time of the call; fewer where there are none. 0: 1.
  int32_t paths;
  int32_t reserved;                 // 0
  lathe_tree_drafter tree_drafter;  // of trees; NULL: the ways that the text went on before
} lathe_draft_options;

typedef struct lathe_draft_counts {
  size_t struct_size;
  int32_t steps;     // of the batch
  int32_t drafted;   // tokens
  int32_t accepted;  // of those
  int32_t reserved;  // 0
} lathe_draft_counts;

// Decodes `token` in a sequence and then, each time, the token that was chosen: the `count` tokens
// that steps of one row each would have chosen, in fewer steps. Both structs may be NULL.
LATHE_API lathe_status lathe_batch_generate_with_drafts(lathe_batch* batch, int32_t sequence,
                                                        int32_t token,
                                                        const lathe_draft_options* options,
                                                        int32_t* tokens, int32_t count,
                                                        lathe_draft_counts* counts);

#ifdef __cplusplus
}
#endif

#endif  // LATHE_C_BATCH_H
