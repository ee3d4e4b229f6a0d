// Owns the tests of the fused plan: that it computes what the plan with a kernel for each operation
// does, what its steps are, and what it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lathe/codegen/kernel_table.h"
#include "lathe/codegen/tile.h"
#include "lathe/plan/plan.h"
#include "tests/plan/plan_interpreter.h"
#include "tests/plan/reference_model.h"
#include "tests/plan/tiny_models.h"

namespace lathe {
namespace {

using testing::fusible;
using testing::PlanInterpreter;
using testing::ReferenceModel;
using testing::TinyModel;

constexpr int kTokens = 12;
// Both round to f32 after each step, at other places.
constexpr double kBound = 1e-4;

std::vector<TinyModel> all_families(Format weights = Format::q8_0) {
  std::vector<TinyModel> out;
  for (const TinyModel& model : {testing::tiny_llama(), testing::tiny_qwen2(),
                                 testing::tiny_qwen3(), testing::tiny_gemma3()})
    out.push_back(fusible(model, weights));
  return out;
}

struct Built {
  testing::GgufImage image;
  std::shared_ptr<const GgufFile> file;
  Plan plan;
};

Built build(const TinyModel& model, const PlanOptions& options) {
  Built out;
  out.image = testing::tiny_model(model);
  out.file = GgufFile::from_bytes(out.image.bytes, "tiny.gguf").value();
  Result<Plan> plan = build_plan(*out.file, options);
  EXPECT_TRUE(plan) << model.architecture << ": " << (plan ? "" : plan.error().text());
  if (plan) out.plan = std::move(plan).value();
  return out;
}

PlanOptions options_of(Fusion fusion, Format kv = Format::f32) {
  PlanOptions options;
  options.fusion = fusion;
  options.kv = kv;
  options.blocks = 5;
  return options;
}

template <class Wanted>
double relative_error(std::span<const float> got, const Wanted& wanted) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double w = static_cast<double>(wanted[i]);
    difference += (static_cast<double>(got[i]) - w) * (static_cast<double>(got[i]) - w);
    norm += w * w;
  }
  return std::sqrt(difference / norm);
}

// The greatest error of the fused plan's logits against those of the other.
double greatest_error(const TinyModel& model, Format kv) {
  const Built fused = build(model, options_of(Fusion::full, kv));
  const Built plain = build(model, options_of(Fusion::none, kv));
  PlanInterpreter a(fused.plan, *fused.file), b(plain.plan, *plain.file);
  double greatest = 0;
  for (int i = 0; i < kTokens; ++i) {
    const std::int32_t token = (i * 37 + 11) % model.vocab;
    const std::span<const float> wanted = b.step(token);
    const double error = relative_error(a.step(token), wanted);
    EXPECT_FALSE(std::isnan(error)) << "token " << i;
    greatest = std::max(greatest, error);
  }
  return greatest;
}

TEST(FusedPlan, EveryFamilyEqualsThePlanOfSingleOperations) {
  for (TinyModel model : all_families()) {
    for (bool tied : {true, false}) {
      model.tied = tied;
      for (Format kv : {Format::f32, Format::f16})
        EXPECT_LT(greatest_error(model, kv), kBound)
            << model.architecture << (tied ? " tied" : " untied") << " " << row(kv).name;
    }
  }
}

TEST(FusedPlan, EveryFormatWithTilesEqualsThePlanOfSingleOperations) {
  for (const FormatRow& format : formats()) {
    if (!tile_shape(format.format, 16, 256)) continue;
    for (TinyModel model : all_families(format.format)) {
      model.layers = model.is_gemma() ? 6 : 1;
      EXPECT_LT(greatest_error(model, Format::f32), kBound)
          << model.architecture << " " << format.name;
    }
  }
}

// What quantizers write under these names has several formats in it.
TEST(FusedPlan, MixesOfModelFilesEqualThePlanOfSingleOperations) {
  for (const testing::FileMix& mix : testing::file_mixes()) {
    TinyModel model = fusible(testing::tiny_llama(), Format::q4_k);
    model.weights = mix.weights;
    model.exceptions = mix.exceptions;
    EXPECT_LT(greatest_error(model, Format::f32), kBound) << mix.name;
  }
}

TEST(FusedPlan, FormatsMayDifferFromTensorToTensor) {
  TinyModel model = fusible(testing::tiny_llama(), Format::q4_k);
  model.exceptions = {
      {"blk.0.attn_v.weight", Format::q6_k}, {"blk.1.ffn_down.weight", Format::q5_k},
      {"blk.1.attn_k.weight", Format::q8_0}, {"blk.0.ffn_up.weight", Format::q4_0},
      {"token_embd.weight", Format::bf16},   {"output.weight", Format::q6_k}};
  EXPECT_LT(greatest_error(model, Format::f32), kBound);
}

// Only fused plans have this cache: the reference is exact, and the cache rounds to 8 bits.
TEST(FusedPlan, AQ8CacheStaysCloseToTheReference) {
  for (const TinyModel& model : all_families()) {
    const Built fused = build(model, options_of(Fusion::full, Format::q8_0));
    // Two heads of 34 bytes each, up to a multiple of 16.
    EXPECT_EQ(fused.plan.kv_bytes_per_layer(), model.context * 80);
    PlanInterpreter interpreter(fused.plan, *fused.file);
    ReferenceModel reference(model, *fused.file);
    for (int i = 0; i < kTokens; ++i) {
      const std::int32_t token = (i * 37 + 11) % model.vocab;
      const std::vector<double> wanted = reference.step(token);
      EXPECT_LT(relative_error(interpreter.step(token), wanted), 2e-2) << model.architecture;
    }
  }
}

TEST(FusedPlan, AnyNumberOfBlocksAndSplitsMatches) {
  const TinyModel model = fusible(testing::tiny_gemma3());
  const Built plain = build(model, options_of(Fusion::none));
  PlanInterpreter wanted(plain.plan, *plain.file);
  wanted.step(3);
  const std::span<const float> logits = wanted.step(4);
  for (int blocks : {1, 3, 132, 1024}) {
    for (int splits : {0, 1, 7, 64}) {
      PlanOptions options = options_of(Fusion::full);
      options.blocks = blocks;
      options.attention_splits = splits;
      const Built fused = build(model, options);
      PlanInterpreter interpreter(fused.plan, *fused.file);
      interpreter.step(3);
      EXPECT_LT(relative_error(interpreter.step(4), logits), kBound) << blocks << " " << splits;
    }
  }
}

TEST(FusedPlan, HasFiveKernelsALayer) {
  for (const TinyModel& model : all_families()) {
    const Plan plan = build(model, options_of(Fusion::full)).plan;
    EXPECT_EQ(plan.counts().launches, 5 * model.layers + 4) << model.architecture;
    std::vector<std::string> labels;
    for (const Step& step : plan.steps)
      if (step.layer == 1) labels.push_back(step.label);
    EXPECT_EQ(labels, (std::vector<std::string>{"attn_qkv", "attention", "attn_output",
                                                "ffn_gate_up", "ffn_down"}));
    for (const Step& step : plan.steps) {
      const auto params = row(step.key.type).params(step.key);
      ASSERT_EQ(params.size(), step.operands.size()) << step.label;
      for (std::size_t i = 0; i < params.size(); ++i) {
        if (params[i].per_position) continue;
        if (params[i].element == Element::tiles) {
          const auto& slot = plan.weights[static_cast<std::size_t>(step.operands[i].index)];
          EXPECT_EQ(slot.layout, Layout::tiles) << step.label;
          EXPECT_EQ(slot.device_bytes(), params[i].bytes) << step.label << " " << params[i].name;
        } else {
          EXPECT_GE(step.operands[i].bytes, params[i].bytes) << step.label << " " << params[i].name;
        }
      }
    }
  }
}

// A persistent kernel's blocks hand vectors over while they run.
TEST(FusedPlan, EveryVectorHasAPlaceOfItsOwn) {
  for (const TinyModel& model : all_families()) {
    const Plan plan = build(model, options_of(Fusion::full)).plan;
    std::vector<std::pair<std::int64_t, std::int64_t>> written;
    for (const Step& step : plan.steps) {
      const auto params = row(step.key.type).params(step.key);
      for (std::size_t i = 0; i < params.size(); ++i) {
        const Operand& operand = step.operands[i];
        if (operand.place != Place::scratch || params[i].access != Access::write ||
            params[i].scratch)
          continue;
        for (const auto& [first, last] : written)
          EXPECT_TRUE(operand.offset + operand.bytes <= first || operand.offset >= last)
              << step.label << " of layer " << step.layer;
        written.push_back({operand.offset, operand.offset + operand.bytes});
      }
    }
  }
}

TEST(FusedPlan, WeightsWithoutTilesFallBackWithANote) {
  TinyModel model = fusible(testing::tiny_llama());
  model.weights = Format::f32;
  const Plan plan = build(model, options_of(Fusion::automatic)).plan;
  EXPECT_EQ(plan.options.fusion, Fusion::none);
  ASSERT_EQ(plan.notes.size(), 1u);
  EXPECT_NE(plan.notes[0].find("a kernel for each operation"), std::string::npos);
  EXPECT_NE(plan.notes[0].find("f32"), std::string::npos) << plan.notes[0];

  const auto image = testing::tiny_model(model);
  const auto file = GgufFile::from_bytes(image.bytes, "tiny.gguf").value();
  const Result<Plan> refused = build_plan(*file, options_of(Fusion::full));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().text().find("f32"), std::string::npos) << refused.error().text();
}

TEST(FusedPlan, OneMatrixWithoutTilesIsEnoughToFallBack) {
  TinyModel model = fusible(testing::tiny_llama());
  model.exceptions = {{"blk.1.ffn_down.weight", Format::f32}};
  const Plan plan = build(model, options_of(Fusion::automatic)).plan;
  EXPECT_EQ(plan.options.fusion, Fusion::none);
  ASSERT_EQ(plan.notes.size(), 1u);
  EXPECT_NE(plan.notes[0].find("f32"), std::string::npos) << plan.notes[0];
}

TEST(FusedPlan, AutomaticTakesItWhereItCan) {
  const Plan plan = build(fusible(testing::tiny_llama()), options_of(Fusion::automatic)).plan;
  EXPECT_EQ(plan.options.fusion, Fusion::full);
  EXPECT_TRUE(plan.notes.empty());
}

TEST(FusedPlan, HeadsThatAttendDoesNotCoverFallBack) {
  TinyModel model = fusible(testing::tiny_llama());
  model.head_dim = model.rotary = 16;
  const Plan plan = build(model, options_of(Fusion::automatic)).plan;
  EXPECT_EQ(plan.options.fusion, Fusion::none);
  ASSERT_EQ(plan.notes.size(), 1u);
  EXPECT_NE(plan.notes[0].find("head_dim"), std::string::npos) << plan.notes[0];
}

TEST(FusedPlan, AQ8CacheNeedsIt) {
  TinyModel model = testing::tiny_llama();
  for (Fusion fusion : {Fusion::none, Fusion::automatic, Fusion::full}) {
    const auto image = testing::tiny_model(model);  // f32
    const auto file = GgufFile::from_bytes(image.bytes, "tiny.gguf").value();
    const Result<Plan> refused = build_plan(*file, options_of(fusion, Format::q8_0));
    EXPECT_FALSE(refused);
  }
  EXPECT_EQ(build(fusible(model), options_of(Fusion::automatic, Format::q8_0)).plan.options.fusion,
            Fusion::full);
}

TEST(FusedPlan, BlocksAreChecked) {
  const TinyModel model = fusible(testing::tiny_llama());
  const auto image = testing::tiny_model(model);
  const auto file = GgufFile::from_bytes(image.bytes, "tiny.gguf").value();
  for (int blocks : {-1, 1025}) {
    PlanOptions options = options_of(Fusion::full);
    options.blocks = blocks;
    const Result<Plan> refused = build_plan(*file, options);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::invalid_argument);
  }
}

}  // namespace
}  // namespace lathe
