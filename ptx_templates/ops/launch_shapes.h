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
  kTopK = 64,                   // logits that sampling chooses from: two per lane of a warp
  kTopKFlags = 4096,            // logits of a share that have a flag of their own; a power of two
  kRecentTokens = 256,          // that the repeat penalty can look at; a power of two
};

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

// Bytes of flags a top_k block keeps of the recent tokens in its share of n logits.
LATHE_SHAPE int top_k_flag_bytes(int n, int blocks) {
  return ceil_div(min_int(ceil_div(n, blocks), kTopKFlags), 16) * 16;
}

// Bytes of shared memory of a top_k and of a sample block: a list of 64 candidates for every warp
// but the first; before them, top_k's flags.
LATHE_SHAPE int sample_shared_bytes(int threads) {
  return (threads / 32 - 1) * kTopK * 8;
}
LATHE_SHAPE int top_k_shared_bytes(int n, int blocks, int threads) {
  return top_k_flag_bytes(n, blocks) + sample_shared_bytes(threads);
}

}  // namespace lathe::dev
