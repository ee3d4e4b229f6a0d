// Owns the measured rules for every tuning field in a plan's keys (applied by plan/selection.h).
// Each choice is valid for any shape and changes speed only.
#pragma once

#include "lathe/codegen/kernel_key.h"
#include "lathe/plan/gpu_profile.h"

namespace lathe {

struct GemvTuning {
  int warps = 4;  // per block
  int rows = 1;   // per warp
};

// For y[n] = W[n][k] . x[k].
GemvTuning gemv_tuning(int n, int k);

// Warps of the one block that norms a row of k values: four values a thread.
int rms_norm_warps(int k);

inline constexpr int kMaxAttentionSplits = 64;

// Parts that the visible positions are cut into. One block works on one split of one KV head: the
// aim is two blocks for each multiprocessor, but at least 64 positions per split when the cache is
// full, and at most kMaxAttentionSplits.
int attention_splits(int kv_heads, int visible_positions, int multiprocessors);

// Warps of the fused kernels. With eight a thread has 255 registers, and nothing of a phase has to
// lie in local memory: while weights stream, a spilled value took up to 8000 clocks to come back
// (docs/performance.md, "Nothing may wait behind the weights").
inline constexpr int kFusedWarps = 8;
inline constexpr int kBlocksPerMultiprocessor = 2;
inline constexpr int kFewBlockWarps = 9;   // of matmul with few tokens
inline constexpr int kMostFewStages = 3;   // likewise: more shared memory is taken from neighbours
inline constexpr int kMostFewWarps = 16;   // likewise, that multiply
inline constexpr int kMostFewTokens = 32;  // likewise
inline constexpr int kAppendWarps = 8;     // of append_tokens
inline constexpr int kAttendWarps = 4;     // of attend_rows
inline constexpr int kMatrixRowWarps = 6;  // by the matrix units: two blocks have the registers
inline constexpr int kAtomWarps = 16;      // of kv_append with atoms

// Tiles under way per warp: as many as fit the shared memory of a block.
int matvec_stages(const KernelKey& key);

// Whether attention over so many positions, at most, is done by the matrix units: beyond
// kMatrixPositions, where a key can have them.
inline constexpr int kMatrixPositions = 8192;
bool attends_by_matrix(const KernelKey& key, int positions);

// How blocks share a matmul of few tokens. Which warps add up a row, and in which order, is the
// same for any number of tokens, so that a token's numbers do not depend on how many there are
// beside it.
//
// A block for each multiprocessor at most, with as few rows as that takes; sets blocks, warps,
// splits, stages and paired. A warp has a row tile, or those of a gate and its up; up to four share
// k, as many as leave room for two stages of kMostFewTokens. No blocks have to meet, and nothing is
// left behind their rows. False, and nothing set, where there are too many rows for a block's
// warps, or for its memory.
bool share_rows(KernelKey& key, const GpuProfile& gpu);
// Two blocks for each multiprocessor, so that one streams while the other begins or ends, with
// equal pieces of the work; sets blocks and warps.
void share_evenly(KernelKey& key, const GpuProfile& gpu);

// Parts that the vocabulary is cut into: at most 1024 values each, which 16 warps sort at once, but
// no more than 128 parts.
int vocabulary_splits(int vocab);

// A warp for each 64 logits of a part, and for each part's candidates; at most 16.
int top_k_warps(int vocab, int splits);
int sample_warps(int splits);

}  // namespace lathe
