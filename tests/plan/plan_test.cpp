// Owns the tests of a plan's structure: steps, operands, counts, printing.
#include "lathe/plan/plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <set>

#include "lathe/codegen/kernel_table.h"
#include "plan/tuning.h"
#include "tests/plan/tiny_plans.h"

namespace lathe {
namespace {

using testing::all_families;
using testing::build;
using testing::GgufWriter;
using testing::plan_of;
using testing::TinyModel;

std::vector<std::string> labels(const Plan& plan, int layer) {
  std::vector<std::string> out;
  for (const Step& step : plan.steps) {
    if (step.layer == layer) out.push_back(step.label);
  }
  return out;
}

TEST(Plan, LlamaSteps) {
  const Plan plan = plan_of(testing::tiny_llama());
  EXPECT_EQ(labels(plan, -1),
            (std::vector<std::string>{"token_embd", "output_norm", "output", "top_k", "sample"}));
  const std::vector<std::string> layer = {
      "attn_norm", "attn_q",    "attn_k",    "attn_v",          "rope_q",
      "rope_k",    "kv_append", "attention", "attention_merge", "attn_output",
      "ffn_norm",  "ffn_gate",  "ffn_up",    "ffn_glu",         "ffn_down"};
  EXPECT_EQ(labels(plan, 0), layer);
  EXPECT_EQ(labels(plan, 1), layer);
  EXPECT_EQ(plan.steps.front().label, "token_embd");
  EXPECT_EQ(plan.steps.back().label, "sample");
}

TEST(Plan, LaunchesPerLayer) {
  EXPECT_EQ(plan_of(testing::tiny_llama()).counts().launches, 2 * 15 + 5);
  EXPECT_EQ(plan_of(testing::tiny_qwen2()).counts().launches, 2 * 15 + 5);
  EXPECT_EQ(plan_of(testing::tiny_qwen3()).counts().launches, 2 * 17 + 5);
  EXPECT_EQ(plan_of(testing::tiny_gemma3()).counts().launches, 7 * 19 + 5);
}

TEST(Plan, OperandsFitTheirParameters) {
  for (const TinyModel& model : all_families()) {
    const Plan plan = plan_of(model);
    for (const Step& step : plan.steps) {
      const auto params = row(step.key.type).params(step.key);
      ASSERT_EQ(params.size(), step.operands.size()) << step.label;
      for (std::size_t i = 0; i < params.size(); ++i) {
        const Operand& operand = step.operands[i];
        const std::int64_t expected = params[i].per_position ? 0 : params[i].bytes;
        EXPECT_EQ(operand.bytes, expected) << step.label << " " << params[i].name;
        if (operand.place == Place::weight) {
          EXPECT_EQ(plan.weights[static_cast<std::size_t>(operand.index)].bytes, expected);
        }
        if (params[i].per_position) {
          EXPECT_EQ(operand.index, step.layer);
        }
        if (params[i].element == Element::i32) {
          EXPECT_EQ(operand.place, Place::control);
        }
      }
    }
    EXPECT_EQ(plan.logits.bytes, model.vocab * 4);
  }
}

TEST(Plan, CountsOfASmallMixedModel) {
  TinyModel model = testing::tiny_llama();
  model.hidden = 256;
  model.ffn = 512;
  model.head_dim = model.rotary = 64;
  model.vocab = 512;
  model.weights = Format::q4_k;
  for (const char* name : {"blk.1.attn_v.weight", "blk.1.ffn_down.weight", "output.weight"}) {
    model.exceptions[name] = Format::q6_k;
  }
  PlanOptions options;
  options.kv = Format::f16;
  options.attention_splits = 1;
  options.fusion = Fusion::none;
  const PlanCounts counts = plan_of(model, options).counts();
  // Blocks of 256 values: 144 bytes in q4_k, 210 in q6_k.
  const std::int64_t norms = 2 * 256 * 4;
  const std::int64_t qkvo = (256 + 128 + 128 + 256) * 144;
  const std::int64_t ffn = (512 + 512) * 144 + 256 * 2 * 144;
  const std::int64_t finer = 128 * (210 - 144) + 256 * 2 * (210 - 144);
  const std::int64_t head = 256 * 4 + 512 * 210;
  EXPECT_EQ(counts.weight_bytes_read, 144 + 2 * (norms + qkvo + ffn) + finer + head);
  EXPECT_EQ(counts.weight_bytes_read, 818576);
  EXPECT_EQ(counts.kv_bytes_per_position, 2 * 2 * 2 * 64 * 2);
  // Values read and written by a layer's steps in order, then by the rest; 4 bytes each.
  const std::int64_t layer_read = 256 + 3 * 256 + (256 + 64 + 1) + (128 + 64 + 1) +
                                  (128 + 128 + 1) + (256 + 1) + 4 * 66 + (256 + 256) + 256 +
                                  2 * 256 + (512 + 512) + (512 + 256);
  const std::int64_t layer_written =
      256 + (256 + 128 + 128) + 256 + 128 + 4 * 66 + 256 + 256 + 256 + 512 + 512 + 512 + 256;
  const std::int64_t state = sizeof(SamplingState) / 4, list = 2 * kMaxTopK;
  const std::int64_t sampling_read = (512 + 1 + 1 + state) + (list + 1 + state);
  EXPECT_EQ(counts.activation_bytes_read, 4 * (1 + 2 * layer_read + 256 + 256 + sampling_read));
  EXPECT_EQ(counts.activation_bytes_written, 4 * (256 + 2 * layer_written + 256 + 512 + list + 1));
  // Multiply-adds of the matrices, two operations each; the rest is small beside them.
  const std::int64_t matrices =
      2 * (2 * 256 * (256 + 128 + 128 + 256 + 512 + 512 + 512) + 512 * 256);
  EXPECT_GE(counts.operations, matrices);
  EXPECT_LT(counts.operations, matrices * 103 / 100);
  EXPECT_EQ(counts.attention_operations_per_position, 2 * 4 * 4 * 64);
}

TEST(Plan, TheEmbeddingIsReadByRowAndTheTiedHeadWhole) {
  TinyModel tied = testing::tiny_llama();
  tied.tied = true;
  const Plan plan = plan_of(tied);
  const Plan untied = plan_of(testing::tiny_llama());
  EXPECT_EQ(plan.weights.size() + 1, untied.weights.size());
  EXPECT_EQ(plan.counts().weight_bytes_read, untied.counts().weight_bytes_read);
  EXPECT_EQ(plan.steps.front().operands[0].index,
            plan.steps[plan.steps.size() - 3].operands[0].index);
}

TEST(Plan, KvBytesFollowOptionsAndWindows) {
  PlanOptions options;
  options.context = 40;
  options.kv = Format::f16;
  const Plan f16 = plan_of(testing::tiny_gemma3(), options);
  options.kv = Format::f32;
  const Plan f32 = plan_of(testing::tiny_gemma3(), options);
  EXPECT_EQ(f16.kv_bytes_per_layer(), 40 * 32 * 2);
  EXPECT_EQ(f32.kv_bytes_per_layer(), 40 * 32 * 4);
  // One global layer, six with a window of 5.
  EXPECT_EQ(f16.kv_bytes_read(3), 2 * 7 * 3 * 32 * 2);
  EXPECT_EQ(f16.kv_bytes_read(20), 2 * (20 + 6 * 5) * 32 * 2);
}

TEST(Plan, TheContextDefaultsToTheModelsUpTo4096) {
  TinyModel model = testing::tiny_llama();
  EXPECT_EQ(plan_of(model).options.context, 64);
  model.context = 100000;
  EXPECT_EQ(plan_of(model).options.context, 4096);
}

TEST(Plan, DistinctKeysAreDistinctAndComplete) {
  for (const TinyModel& model : all_families()) {
    const Plan plan = plan_of(model);
    const auto keys = plan.distinct_keys();
    std::set<std::string> texts;
    for (const KernelKey& key : keys) texts.insert(key.text());
    EXPECT_EQ(texts.size(), keys.size());
    for (const Step& step : plan.steps) EXPECT_TRUE(texts.contains(step.key.text()));
    EXPECT_EQ(plan.counts().distinct_kernels, static_cast<int>(keys.size()));
  }
}

TEST(Plan, PrintsAsTextAndJson) {
  for (const TinyModel& model : all_families()) {
    GgufWriter writer = testing::tiny_model_writer(model);
    writer.drop("general.name");
    writer.string("general.name", "not UTF-8: \xff\xfe");
    const auto plan = build(writer);
    ASSERT_TRUE(plan) << plan.error().text();
    const std::string text = plan->to_text();
    for (const Step& step : plan->steps) {
      EXPECT_NE(text.find(step.key.text()), std::string::npos);
      EXPECT_NE(text.find(step.label), std::string::npos);
    }
    const auto json = nlohmann::json::parse(plan->to_json());
    EXPECT_EQ(json["model"]["architecture"], model.architecture);
    EXPECT_EQ(json["steps"].size(), plan->steps.size());
    EXPECT_EQ(json["weights"].size(), plan->weights.size());
    EXPECT_EQ(json["kernels"].size(), plan->distinct_keys().size());
    EXPECT_EQ(json["counts"]["launches"], plan->counts().launches);
    EXPECT_EQ(json["counts"]["weight_bytes_read"], plan->counts().weight_bytes_read);
    EXPECT_EQ(json["arena_bytes"], plan->arena_bytes);
    EXPECT_EQ(json["steps"][1]["key"], plan->steps[1].key.text());
    EXPECT_EQ(json["steps"][1]["operands"][0]["place"], "scratch");
  }
}

TEST(Plan, RopeTableHoldsRevolutionsInTwoFloats) {
  RopeSpec rope;
  rope.theta = 500000;
  rope.dims = 64;
  rope.freq_scale = 0.125;
  for (int i = 0; i < 32; ++i) rope.factors.push_back(1.0f + static_cast<float>(i));
  const std::vector<float> table = rope_table(rope, 128);
  ASSERT_EQ(table.size(), 64u);
  for (std::size_t i = 0; i < 32; ++i) {
    const double wanted = 0.125 * std::pow(500000.0, -static_cast<double>(i) / 32) /
                          (1.0 + static_cast<double>(i)) / (2 * std::numbers::pi);
    const double got = static_cast<double>(table[2 * i]) + static_cast<double>(table[2 * i + 1]);
    EXPECT_NEAR(got / wanted, 1, 1e-13);
  }
  rope.dims = 0;
  rope.factors.clear();
  EXPECT_EQ(rope_table(rope, 128).size(), 128u);
}

TEST(Tuning, AttentionSplitsFillALargeGpuButNotATinyContext) {
  EXPECT_EQ(attention_splits(8, 1, 132), 1);
  EXPECT_EQ(attention_splits(8, 64, 132), 1);
  EXPECT_EQ(attention_splits(8, 65, 132), 2);
  EXPECT_GE(attention_splits(8, 32768, 132) * 8, 2 * 132);
  EXPECT_EQ(attention_splits(1, 1 << 20, 132), kMaxAttentionSplits);
  EXPECT_EQ(attention_splits(1024, 32768, 132), 1);
}

TEST(Tuning, AWindowLimitsTheSplits) {
  TinyModel model = testing::tiny_gemma3();
  model.context = 4096;
  model.window = 128;
  for (const Step& step : plan_of(model).steps) {
    if (step.label == "attention") {
      EXPECT_EQ(step.key.splits, step.key.window > 0 ? 2 : 64);
    }
  }
}

TEST(Tuning, EveryChoiceIsValidForEveryShape) {
  for (const int n : {1, 2, 31, 1000, 1024, 5000, 151936, 1 << 30}) {
    const int splits = vocabulary_splits(n);
    EXPECT_GE(splits, 1);
    EXPECT_LE(splits, std::min(n, 128));
    EXPECT_GE(std::min(top_k_warps(n, splits), sample_warps(splits)), 1);
    EXPECT_LE(std::max(top_k_warps(n, splits), sample_warps(splits)), 16);
    EXPECT_GE(rms_norm_warps(n), 1);
    EXPECT_LE(rms_norm_warps(n), 32);
  }
}

}  // namespace
}  // namespace lathe
