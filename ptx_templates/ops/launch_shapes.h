// Owns the sizes that a kernel's code and its launch must agree on: what a block stages, holds and
// covers. The ops include it, and so do the rows of the kernel table that compute the launch.
#pragma once

#include "isa/shape_math.h"

namespace lathe::dev {

enum : int {
  kGemvChunk = 8192,            // values of x staged at once; a multiple of 32 and of every block
  kGemvMaxRows = 8,             // rows per warp
  kAttentionMaxHeads = 8,       // query heads per block
  kAttentionMaxPairs = 4,       // pairs of head elements per lane: head_dim up to 256
  kAttentionAccumulators = 32,  // values of the result a lane keeps in registers
};

// The shared memory of a matrix-vector phase beside its ring of weights: partial sums of row tiles
// in two halves, gate values, sums of squares; and the activations of its tile columns.
enum : int {
  kPhaseWarps = 16,
  kPartialFloats = 1792,  // a half: 7 row tiles of 16 warps
  kGateFloats = 224,      // 14 row tiles
  kPhaseScratch = (2 * kPartialFloats + kGateFloats + 4 * kPhaseWarps) * 4,
  kColumnBytes = 640,
  kStreamEntryBytes = 16,
  kStreamStepsBytes = 24,
};

// The formats of tiles by number.
enum : int {
  kTileQ4_0,
  kTileQ4_1,
  kTileQ5_0,
  kTileQ5_1,
  kTileQ8_0,
  kTileQ4_K,
  kTileQ5_K,
  kTileQ6_K,
};

// Shared memory of the rings of weights: their slots, a barrier for each, and each warp's cursor.
LATHE_SHAPE int stream_bytes(int warps, int slots, int slot_bytes) {
  return warps * (slots * (slot_bytes + 8) + kStreamStepsBytes);
}

// Bytes of shared memory a gemv block needs for k values: each run of 16 padded to 20.
LATHE_SHAPE int gemv_shared_bytes(int k) {
  return ceil_div(min_int(k, kGemvChunk), 16) * 80;
}

// Query heads per attention block for this group size and head_dim.
LATHE_SHAPE int attention_heads(int group, int head_dim) {
  return min_int(min_int(group, kAttentionMaxHeads),
                 max_int(1, kAttentionAccumulators / (2 * ceil_div(head_dim, 64))));
}

// Floats of shared memory of an attention block: the scaled queries, then per warp each head's
// values, maximum and sum.
LATHE_SHAPE int attention_shared_floats(int group, int head_dim, int warps) {
  return attention_heads(group, head_dim) * (head_dim + warps * (head_dim + 2));
}

}  // namespace lathe::dev
