// Owns the proof that a plan computes its model: every family through the kernels' oracles against
// the straight-line reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "lathe/plan/plan.h"
#include "tests/plan/plan_interpreter.h"
#include "tests/plan/reference_model.h"
#include "tests/plan/tiny_models.h"

namespace lathe {
namespace {

using testing::all_families;
using testing::PlanInterpreter;
using testing::ReferenceModel;
using testing::TinyModel;

// The plan rounds to f32 after every step, the reference never: some 1e-6 per token.
constexpr double kBoundF32 = 1e-4;
// K and V rounded to 11 bits.
constexpr double kBoundF16 = 5e-3;
constexpr int kTokens = 12;

double relative_error(std::span<const float> got, const std::vector<double>& wanted) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    difference += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    norm += wanted[i] * wanted[i];
  }
  return std::sqrt(difference / norm);
}

// The greatest error of any position's logits: the file and the plan are of `model`, the reference
// computes `other`, which has the same tensors. Infinite when a logit is NaN.
double greatest_error(const TinyModel& model, const TinyModel& other, const PlanOptions& options) {
  const auto image = testing::tiny_model(model);
  const auto file = GgufFile::from_bytes(image.bytes, "tiny.gguf");
  const auto plan = build_plan(**file, options);
  EXPECT_TRUE(plan) << (plan ? "" : plan.error().text());
  if (!plan) return std::numeric_limits<double>::infinity();
  ReferenceModel reference(other, **file);
  PlanInterpreter interpreter(*plan, **file);
  double greatest = 0;
  for (int i = 0; i < kTokens; ++i) {
    const std::int32_t token = (i * 37 + 11) % model.vocab;
    const std::vector<double> wanted = reference.step(token);
    const std::span<const float> got = interpreter.step(token);
    const double error = relative_error(got, wanted);
    if (std::isnan(error)) return std::numeric_limits<double>::infinity();
    greatest = std::max(greatest, error);
    EXPECT_EQ(interpreter.sampled(), std::max_element(got.begin(), got.end()) - got.begin());
  }
  return greatest;
}

void expect_same_logits(const TinyModel& model, const PlanOptions& options, double bound) {
  EXPECT_LT(greatest_error(model, model, options), bound)
      << model.architecture << " in " << row(model.weights).name;
}

PlanOptions with_cache(Format format) {
  PlanOptions options;
  options.kv = format;
  return options;
}

TEST(PlanExecution, EveryFamilyMatchesTheReference) {
  for (const TinyModel& model : all_families())
    expect_same_logits(model, with_cache(Format::f32), kBoundF32);
}

TEST(PlanExecution, EveryFamilyMatchesWithAnF16Cache) {
  for (const TinyModel& model : all_families())
    expect_same_logits(model, with_cache(Format::f16), kBoundF16);
}

TEST(PlanExecution, EveryFormatMatchesTheReference) {
  for (const FormatRow& format : formats()) {
    if (format.ggml_type == kNoFileType) continue;
    for (TinyModel model : all_families()) {
      model.weights = format.format;
      const int width = format.block > 32 ? 256 : 64;
      model.hidden = width;
      model.ffn = 2 * width;
      model.heads = width / model.head_dim;
      model.kv_heads = model.heads / 2;
      model.layers = model.is_gemma() ? 6 : 1;
      expect_same_logits(model, with_cache(Format::f32), kBoundF32);
    }
  }
}

TEST(PlanExecution, FormatsMayDifferFromTensorToTensor) {
  TinyModel model = testing::tiny_llama();
  model.hidden = 256;
  model.ffn = 512;
  model.heads = 16;
  model.weights = Format::q4_k;
  model.exceptions = {{"blk.0.attn_v.weight", Format::q6_k},
                      {"blk.1.ffn_down.weight", Format::q5_k},
                      {"blk.1.attn_k.weight", Format::q8_0},
                      {"token_embd.weight", Format::bf16},
                      {"output.weight", Format::q6_k}};
  expect_same_logits(model, with_cache(Format::f32), kBoundF32);
}

TEST(PlanExecution, MixesOfModelFilesMatch) {
  for (const testing::FileMix& mix : testing::file_mixes()) {
    TinyModel model = testing::tiny_llama();
    model.hidden = 256;
    model.ffn = 512;
    model.heads = 16;
    model.weights = mix.weights;
    model.exceptions = mix.exceptions;
    SCOPED_TRACE(mix.name);
    expect_same_logits(model, with_cache(Format::f32), kBoundF32);
  }
}

TEST(PlanExecution, AnyNumberOfAttentionSplitsMatches) {
  for (const int splits : {1, 2, 3, 7, 64}) {
    PlanOptions options = with_cache(Format::f32);
    options.attention_splits = splits;
    for (const TinyModel& model : all_families()) expect_same_logits(model, options, kBoundF32);
  }
}

TEST(PlanExecution, PartialRotationScalingAndWindowMatch) {
  TinyModel partial = testing::tiny_llama();
  partial.rotary = 8;
  expect_same_logits(partial, with_cache(Format::f32), kBoundF32);
  TinyModel scaled = testing::tiny_qwen3();
  scaled.linear_factor = 4;
  expect_same_logits(scaled, with_cache(Format::f32), kBoundF32);
  TinyModel windowed = testing::tiny_llama();
  windowed.window = 4;
  expect_same_logits(windowed, with_cache(Format::f32), kBoundF32);
  TinyModel no_window = testing::tiny_gemma3();
  no_window.window = 0;
  expect_same_logits(no_window, with_cache(Format::f32), kBoundF32);
}

TEST(PlanExecution, TheComparisonNoticesEveryHyperparameter) {
  const auto noticed = [](const TinyModel& model, auto change) {
    TinyModel other = model;
    change(other);
    return greatest_error(model, other, with_cache(Format::f32)) > 10 * kBoundF32;
  };
  const TinyModel llama = testing::tiny_llama();
  const TinyModel gemma = testing::tiny_gemma3();
  EXPECT_TRUE(noticed(gemma, [](TinyModel& other) { other.window = 6; }));
  EXPECT_TRUE(noticed(gemma, [](TinyModel& other) { other.window = 4; }));
  EXPECT_TRUE(noticed(gemma, [](TinyModel& other) { other.theta = 10000; }));
  EXPECT_TRUE(noticed(gemma, [](TinyModel& other) { other.linear_factor = 1; }));
  EXPECT_TRUE(noticed(llama, [](TinyModel& other) { other.theta = 10000; }));
  EXPECT_TRUE(noticed(llama, [](TinyModel& other) { other.rope_factors = false; }));
  EXPECT_TRUE(noticed(llama, [](TinyModel& other) { other.rotary = 8; }));
  EXPECT_TRUE(noticed(llama, [](TinyModel& other) { other.epsilon = 1e-2; }));
  EXPECT_TRUE(noticed(llama, [](TinyModel& other) { other.tied = true; }));
  EXPECT_TRUE(noticed(llama, [](TinyModel& other) { other.architecture = "rotates halves"; }));
}

TEST(PlanExecution, RecentTokensArePenalizedAsFarBackAsTheRulesSay) {
  const TinyModel model = testing::tiny_llama();
  const auto image = testing::tiny_model(model);
  const auto file = GgufFile::from_bytes(image.bytes, "tiny.gguf");
  const auto plan = build_plan(**file, with_cache(Format::f32));
  ASSERT_TRUE(plan);
  PlanInterpreter interpreter(*plan, **file);
  interpreter.set_sampling({.repeat_penalty = 3, .repeat_last = 5});
  std::vector<std::int32_t> history = {7};
  for (int i = 0; i < 40; ++i) {
    const std::span<const float> got = interpreter.step(history.back());
    std::vector<float> logits(got.begin(), got.end());
    const auto recent = std::min<std::ptrdiff_t>(5, std::ssize(history));
    const std::set<std::int32_t> penalized(history.end() - recent, history.end());
    for (const std::int32_t id : penalized) {
      float& logit = logits[static_cast<std::size_t>(id)];
      logit = logit > 0 ? logit / 3 : logit * 3;
    }
    const auto greatest = std::max_element(logits.begin(), logits.end()) - logits.begin();
    ASSERT_EQ(interpreter.sampled(), greatest) << i;
    history.push_back(interpreter.sampled());
  }
}

TEST(PlanExecution, TheContextMayBeFilledToTheLastPosition) {
  PlanOptions options = with_cache(Format::f32);
  options.context = kTokens;
  for (const TinyModel& model : all_families()) expect_same_logits(model, options, kBoundF32);
}

}  // namespace
}  // namespace lathe
