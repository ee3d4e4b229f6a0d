// Owns the choice of every tuning field in a plan's keys.
#include "plan/tuning.h"

#include <algorithm>

namespace lathe {
namespace {

constexpr int kNormValuesPerWarp = 4 * 32;
constexpr int kMaxWarps = 32;
constexpr int kBlocksWanted = 2 * 132;
constexpr int kPositionsPerSplit = 64;
constexpr int kValuesPerArgmaxSplit = 1024;
constexpr int kMaxArgmaxSplits = 128;

int ceil_div(int a, int b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace

GemvTuning gemv_tuning(Format /*format*/, int /*n*/, int /*k*/) {
  return {};
}

int rms_norm_warps(int k) {
  return std::clamp(ceil_div(k, kNormValuesPerWarp), 1, kMaxWarps);
}

int attention_splits(int kv_heads, int visible_positions) {
  const int wanted = ceil_div(kBlocksWanted, kv_heads);
  const int useful = ceil_div(visible_positions, kPositionsPerSplit);
  return std::clamp(std::min(wanted, useful), 1, kMaxAttentionSplits);
}

int argmax_splits(int vocab) {
  return std::clamp(vocab / kValuesPerArgmaxSplit, 1, kMaxArgmaxSplits);
}

}  // namespace lathe
