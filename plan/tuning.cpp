// Owns the measured rules for every tuning field in a plan's keys.
#include "plan/tuning.h"

#include <algorithm>

#include "lathe/codegen/kernel_table.h"

namespace lathe {
namespace {

constexpr int kNormValuesPerWarp = 4 * 32;
constexpr int kMaxWarps = 32;
constexpr int kPositionsPerSplit = 64;
constexpr int kValuesPerVocabularySplit = 1024;
constexpr int kMaxVocabularySplits = 128;
constexpr int kMaxSamplingWarps = 16;

int ceil_div(int a, int b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace

// The fastest of warps 2, 4, 8 and rows 1, 2, 4 on an H200, for q4_k, q6_k, q8_0 and q4_1 at the
// shapes of 0.1B to 8B models (docs/performance.md); formats differed by less than the shapes did.
GemvTuning gemv_tuning(int n, int k) {
  const bool short_rows = k < 2048, many_rows = n >= 32768;
  return {.warps = short_rows || many_rows ? 4 : 8, .rows = n >= 2048 ? 2 : 1};
}

int rms_norm_warps(int k) {
  return std::clamp(ceil_div(k, kNormValuesPerWarp), 1, kMaxWarps);
}

int attention_splits(int kv_heads, int visible_positions, int multiprocessors) {
  const int wanted = ceil_div(kBlocksPerMultiprocessor * multiprocessors, kv_heads);
  const int useful = ceil_div(visible_positions, kPositionsPerSplit);
  return std::clamp(std::min(wanted, useful), 1, kMaxAttentionSplits);
}

int matvec_stages(const KernelKey& key) {
  KernelKey deeper = key;
  deeper.stages = 1;
  while (deeper.stages < kMaxStages) {
    ++deeper.stages;
    if (!check_key(deeper)) return deeper.stages - 1;
  }
  return kMaxStages;
}

// Measured on an H200 (docs/performance.md): mega 1.06 to 1.17 times at 32768 positions, 1.00 at
// 4096, and nothing in between.
bool attends_by_matrix(const KernelKey& key, int positions) {
  KernelKey by_matrix = key;
  by_matrix.matrix = true;
  return positions > kMatrixPositions && check_key(by_matrix);
}

namespace {

int few_stages(KernelKey key, int shared_bytes) {
  const auto fits = [&] {
    return check_key(key) && int(row(key.type).geometry(key).shared_bytes) <= shared_bytes;
  };
  for (key.stages = kMostFewStages; key.stages > 1 && !fits();) --key.stages;
  return key.stages;
}

// A thread of 17 warps has 96 registers, which the sums of two row tiles and 32 tokens do not fit.
constexpr int kMostPairedWarps = 16;

}  // namespace

bool share_rows(KernelKey& key, const GpuProfile& gpu) {
  // Row tiles of each matrix, of gates with zeros up to whole operands.
  const auto tiles = [&](int n) { return key.gated ? 4 * ceil_div(n, 64) : ceil_div(n, 16); };
  const auto blocks = [&](int warps) {
    int all = ceil_div(tiles(key.n), warps);
    for (const int n : {key.n_b, key.n_c}) all += key.gated ? 0 : ceil_div(tiles(n), warps);
    return all;
  };
  int row_warps = 1;
  while (row_warps <= kMostFewWarps && blocks(row_warps) > gpu.multiprocessors) ++row_warps;
  KernelKey most = key;
  most.tokens = kMostFewTokens;
  most.paired = key.gated;
  most.blocks = blocks(row_warps);
  for (const int splits : {4, 2, 1}) {
    most.splits = splits;
    most.warps = row_warps * splits + 1;
    if (most.paired && most.warps > kMostPairedWarps) continue;
    if (few_stages(most, gpu.block_shared_bytes) == 1) continue;
    most.tokens = key.tokens;
    most.stages = few_stages(most, gpu.block_shared_bytes);
    key = most;
    return true;
  }
  return false;
}

void share_evenly(KernelKey& key, const GpuProfile& gpu) {
  key.blocks = gpu.multiprocessors * kBlocksPerMultiprocessor;
  key.warps = kFewBlockWarps;
}

int vocabulary_splits(int vocab) {
  return std::clamp(ceil_div(vocab, kValuesPerVocabularySplit), 1, kMaxVocabularySplits);
}

int top_k_warps(int vocab, int splits) {
  return std::min(ceil_div(ceil_div(vocab, splits), 64), kMaxSamplingWarps);
}

int sample_warps(int splits) {
  return std::min(splits, kMaxSamplingWarps);
}

}  // namespace lathe
