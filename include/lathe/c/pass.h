// Owns sessions of a part of a model, from hidden states and to hidden states, and what a session
// says of the time that its work takes. docs/parts.md shows their use.
//
// lathe/c/base.h has the rules of all functions; lathe_session_options::part opens a part.
#ifndef LATHE_C_PASS_H
#define LATHE_C_PASS_H

#include "lathe/c/base.h"
#include "lathe/c/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

// lathe_session_step of a session whose part takes hidden states: `state` has as many floats as
// lathe_session_info::hidden says, which is `count`, and is free when this returns. `token`: what
// counts as recent in its place (lathe_sampling::repeat_penalty); -1: nothing does.
LATHE_API lathe_status lathe_session_step_hidden(lathe_session* session, const float* state,
                                                 int32_t count, int32_t token);

enum {
  LATHE_HIDDEN_STREAM = 0,  // the residual stream after the last layer
  LATHE_HIDDEN_NORMED = 1   // the same after the output norm: what the head multiplies
};

// Waits for the last step. Of any session; `which`: LATHE_HIDDEN_...; `count`:
// lathe_session_info::hidden. With the mega executor a value's lowest bit is not its own.
LATHE_API lathe_status lathe_session_read_hidden(lathe_session* session, int32_t which,
                                                 float* state, int32_t count);

// A step of a token. Texts live as long as the session.
typedef struct lathe_step_time {
  const char* label;   // "attn_qkv"
  const char* kernel;  // the text of its key
  int32_t layer;       // -1: before or after the layers
  int32_t reserved;    // 0
  double microseconds;
} lathe_step_time;

// With lathe_session_options::time_steps: waits, and says how long each step of the last token
// took, by the GPU's clock or the CPU's. *count is how many there are; writes as many, for which
// `room` must suffice, or with `steps` NULL only *count.
LATHE_API lathe_status lathe_session_get_step_times(lathe_session* session, lathe_step_time* steps,
                                                    int32_t room, int32_t* count);

// Submits nothing and waits for it, `times` times, 1 to 100000, after the steps before: the least
// and the median of the microseconds that takes. 0 with the cpu executor.
LATHE_API lathe_status lathe_session_submit_round_trip(lathe_session* session, int32_t times,
                                                       double* least, double* median);

#ifdef __cplusplus
}
#endif

#endif  // LATHE_C_PASS_H
