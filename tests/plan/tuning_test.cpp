// Owns the tests of how a plan fits its kernels to a model's shape.
#include "plan/tuning.h"

#include <gtest/gtest.h>

#include "lathe/plan/model_spec.h"

namespace lathe {
namespace {

TEST(Tuning, WarpsFitTheTileColumns) {
  const struct {
    int hidden, ffn, heads, kv_heads, head_dim, warps;
  } shapes[] = {
      {2048, 8192, 32, 8, 64, 8},     // llama-3.2-1b: 8 and 32 columns
      {3072, 8192, 24, 8, 128, 12},   // llama-3.2-3b: 12 and 32
      {4096, 14336, 32, 8, 128, 16},  // llama-3.1-8b: 16 and 56
      {8192, 28672, 64, 8, 128, 16},  // llama-3.3-70b: 32 and 112
      {1024, 3072, 16, 8, 128, 8},    // qwen3-0.6b: 4, 8 and 12
      {4096, 12288, 32, 8, 128, 16},  // qwen3-8b: 16 and 48
      {576, 1536, 9, 3, 64, 12},      // smollm2-135m: 3 and 6
      {640, 2048, 4, 1, 256, 16},     // gemma-3-270m: 5, 4 and 8
  };
  for (const auto& shape : shapes) {
    ModelSpec spec;
    spec.hidden = shape.hidden;
    spec.ffn = shape.ffn;
    spec.heads = shape.heads;
    spec.kv_heads = shape.kv_heads;
    spec.head_dim = shape.head_dim;
    EXPECT_EQ(fused_warps(spec), shape.warps) << shape.hidden << " and " << shape.ffn;
  }
}

}  // namespace
}  // namespace lathe
