// Owns what the host writes for a persistent kernel, and some of it for kernels of their own: the
// operands and shapes of a step, a block's list of weights, the state between launches. The
// runtime includes it: pointers are addresses in device memory.
#pragma once

#include "isa/types.h"
#include "ops/launch_shapes.h"

namespace lathe::dev {

// A block's share of one matrix, in the order of use. The list for a token repeats from token to
// token.
struct alignas(16) StreamEntry {
  const u8* tiles;
  u32 count;
  u32 tile_bytes;
};

enum : int { kPlainRows = 0, kGatedRows = 1, kLogitRows = 2 };  // what becomes of the sums

struct MatvecShape {
  i32 k, subs, columns;         // values of the vector; sub-blocks per tile; tiles per row
  i32 step_rows, step_columns;  // warps / columns and warps % columns: to a warp's next tile
  i32 first_rows;               // 65536 / columns rounded up: warp's first row tile, times 65536
  i32 rows[3], format[3];       // of the matrices; formats by number, kTile..., 0 rows for those that are not there
  i32 kind, activation;
  f32 inverse_k, epsilon;
};

struct MatvecOperands {
  const f32 *from, *norm, *post, *stream_in, *bias[3], *residual;
  f32 *stream_out, *y;
};

struct AttendOperands {
  const f32* qkv;     // heads queries, kv_heads keys, kv_heads values, each head_dim long
  const f32* q_norm;  // weights of head_dim values, or null for no norm; k_norm likewise
  const f32* k_norm;
  const f32* frequencies;  // as in ops/rope.h
  u8* k_cache;             // as in ops/kv_rows.h, at multiples of 16
  u8* v_cache;
  f32* partial;   // kv_heads x splits x attend_partial_floats: scratch
  u32* counters;  // per KV head, multiples of kAttendArrivals between uses
  f32* y;         // heads x head_dim
};

enum : int { kEmbedStep, kMatvecStep, kAttendStep };

struct StepRecord {
  i32 step;
  i32 variant;  // of attention: which of the program's
  union {
    struct {
      MatvecOperands operands;
      MatvecShape shape;
    } matvec;
    AttendOperands attend;
    struct {
      const u8* table;
      f32* y;
    } embed;
    u64 words[kRecordWords - 1];
  };
};
static_assert(sizeof(StepRecord) == kRecordWords * 8, "the words of a record");

// What outlives a launch, in device memory.
struct PersistentState {
  u32 fault;  // a wait was given up: nothing after that is a result
  u32 epoch;  // tokens decoded so far: its parity is the exchange's tag
};

// Token, position and what was sampled, as the host knows them.
struct TokenControl {
  i32 token, position, sampled;
};

}  // namespace lathe::dev
