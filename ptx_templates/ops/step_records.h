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
  i32 rows[3], format[3];       // of the matrices; formats by number, kTile...
  i32 kind, activation;
  f32 inverse_k, epsilon;
  // The block's share: row tiles of each matrix, the first of them, and in how many batches the
  // blocks work, 0 for all at once (see matvec()).
  i32 count[3], first[3];
  i32 most, batch;
};

// The block's share of a phase, and how much of it is done at a time: all of it where the partial
// sums of the block with the most fit, in both halves of their place. Else batches of one half, the
// halves taking turns, so that each batch needs one barrier.
LATHE_SHAPE void share_phase(MatvecShape& s, int block, int blocks, int warps) {
  const bool gated = s.kind == kGatedRows;
  int tiles[3] = {}, units = 0, begin = 0;
  for (int m = 0; m < 3; ++m) {
    tiles[m] = ceil_div(s.rows[m], 16);
    units += tiles[m];
  }
  if (gated) units = tiles[0];
  for (int m = 0; m < 3; ++m) {
    const int low = block * units / blocks - begin, high = (block + 1) * units / blocks - begin;
    s.first[m] = min_int(max_int(low, 0), tiles[m]);
    s.count[m] = min_int(max_int(high, 0), tiles[m]) - s.first[m];
    if (!gated) begin += tiles[m];
  }
  s.most = ceil_div(units, blocks);
  const int half = kPartialFloats / (16 * min_int(s.columns, warps));
  s.batch = s.most * (gated ? 2 : 1) <= 2 * half ? 0 : half;
}

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
