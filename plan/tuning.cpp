// Owns the choice of every tuning field in a plan's keys.
#include "plan/tuning.h"

#include <algorithm>
#include <utility>

#include "lathe/codegen/kernel_table.h"
#include "lathe/codegen/tile.h"

namespace lathe {
namespace {

constexpr int kNormValuesPerWarp = 4 * 32;
constexpr int kMaxWarps = 32;
constexpr int kBlocksWanted = 2 * 132;
constexpr int kPositionsPerSplit = 64;
constexpr int kValuesPerVocabularySplit = 1024;
constexpr int kMaxVocabularySplits = 128;
constexpr int kMaxSamplingWarps = 16;

int ceil_div(int a, int b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

// How many of the warps have something to do, on average, in a phase over k values.
double busy_warps(int k, int warps) {
  const auto shape = tile_shape(Format::q8_0, 16, std::max(32, k / 32 * 32));
  const int columns = shape ? shape->tiles_per_row : warps;
  if (columns < warps) return warps / columns * columns;
  return static_cast<double>(columns) / ceil_div(columns, warps);
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

int attention_splits(int kv_heads, int visible_positions) {
  const int wanted = ceil_div(kBlocksWanted, kv_heads);
  const int useful = ceil_div(visible_positions, kPositionsPerSplit);
  return std::clamp(std::min(wanted, useful), 1, kMaxAttentionSplits);
}

int fused_warps(const ModelSpec& spec) {
  const double attention = static_cast<double>(spec.heads) * spec.head_dim;
  const double cached = 2.0 * spec.kv_heads * spec.head_dim;
  const struct {
    int k;
    double rows;
  } phases[] = {{spec.hidden, attention + cached + 2.0 * spec.ffn},
                {static_cast<int>(attention), static_cast<double>(spec.hidden)},
                {spec.ffn, static_cast<double>(spec.hidden)}};
  // Time with all warps busy, relative: 8 and 16 measured on an H200 (docs/performance.md, 1B and
  // 8B), 12 between them.
  const bool small = spec.hidden < 4096;
  const std::pair<int, double> choices[] = {
      {8, small ? 1.0 : 1.04}, {12, small ? 1.06 : 1.02}, {16, small ? 1.12 : 1.0}};
  int best = 0;
  double least = 0;
  for (const auto& [warps, factor] : choices) {
    double time = 0;
    for (const auto& [k, rows] : phases) time += k * rows / busy_warps(k, warps);
    time *= warps * factor;
    if (best != 0 && time >= least) continue;
    best = warps;
    least = time;
  }
  return best;
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

int vocabulary_splits(int vocab) {
  return std::clamp(vocab / kValuesPerVocabularySplit, 1, kMaxVocabularySplits);
}

int top_k_warps(int vocab, int splits) {
  return std::min(ceil_div(ceil_div(vocab, splits), 64), kMaxSamplingWarps);
}

int sample_warps(int splits) {
  return std::min(splits, kMaxSamplingWarps);
}

}  // namespace lathe
