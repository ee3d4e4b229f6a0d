// Owns the tests of the plan by which prompts are read: that it leaves in the KV cache what
// decoding leaves, what its steps are, and what it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lathe/codegen/kernel_table.h"
#include "lathe/plan/plan.h"
#include "tests/plan/plan_interpreter.h"
#include "tests/plan/tiny_models.h"

namespace lathe {
namespace {

using testing::fusible;
using testing::PlanInterpreter;
using testing::TinyModel;

constexpr int kChunk = 7;

struct Built {
  testing::GgufImage image;
  std::shared_ptr<const GgufFile> file;
  Plan plan;
};

Built build(const TinyModel& model, Format kv = Format::f16, int chunk = kChunk) {
  Built out;
  out.image = testing::tiny_model(model);
  out.file = GgufFile::from_bytes(out.image.bytes, "tiny.gguf").value();
  PlanOptions options;
  options.fusion = Fusion::full;
  options.kv = kv;
  options.blocks = 5;
  options.chunk = chunk;
  Result<Plan> plan = build_plan(*out.file, options);
  EXPECT_TRUE(plan) << model.architecture << ": " << (plan ? "" : plan.error().text());
  if (plan) out.plan = std::move(plan).value();
  return out;
}

// Of the logits after a prompt of 19 tokens, read in chunks of 7, 7 and 4, and one decoded.
double error_of(const TinyModel& model, Format kv) {
  const Built built = build(model, kv);
  const PrefillPlan prefill = build_prefill_plan(built.plan, false).value();
  std::vector<std::int32_t> prompt;
  for (int i = 0; i < 19; ++i) prompt.push_back((i * 37 + 11) % model.vocab);
  PlanInterpreter decoding(built.plan, *built.file), reading(built.plan, *built.file);
  std::span<const float> wanted, got;
  for (const std::int32_t token : prompt) wanted = decoding.step(token);
  for (std::size_t i = 0; i < 18; i += kChunk)
    reading.read(prefill, std::span(prompt).subspan(i, std::min<std::size_t>(kChunk, 18 - i)));
  got = reading.step(prompt.back());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double w = static_cast<double>(wanted[i]), d = static_cast<double>(got[i]) - w;
    difference += d * d;
    norm += w * w;
  }
  return std::sqrt(difference / norm);
}

int early_steps(const Plan& plan) {
  return int(std::ranges::count_if(plan.steps, [](const Step& step) { return step.key.early; }));
}

// Of a graph all kernels wait by themselves, or none.
TEST(EarlyKernels, AreAllOfATokensAndOfABatchsAndNoneOfOthers) {
  const Built built = build(fusible(testing::tiny_gemma3()));
  EXPECT_EQ(early_steps(built.plan), int(built.plan.steps.size()));
  for (const int rows : {1, 8, 16, 17, 32}) {
    const BatchPlan batch = build_batch_plan(built.plan, rows).value();
    EXPECT_EQ(early_steps(batch.plan), int(batch.plan.steps.size())) << rows;
  }
  EXPECT_EQ(early_steps(build_prefill_plan(built.plan, false)->plan), 0);
  PlanOptions options = built.plan.options;
  options.fusion = Fusion::none;
  EXPECT_EQ(early_steps(*build_plan(*built.file, options)), 0);
  // A part that ends with a kernel that does not wait.
  options.fusion = Fusion::full;
  options.part.output = PartOutput::hidden;
  options.part.input = PartInput::token;
  options.part.layers = 1;
  const Result<Plan> part = build_plan(*built.file, options);
  ASSERT_TRUE(part) << part.error().text();
  EXPECT_EQ(part->steps.back().key.type, KernelType::rms_norm);
  EXPECT_EQ(early_steps(*part), 0);
}

TEST(PrefillPlan, EveryFamilyLeavesWhatDecodingLeaves) {
  for (const TinyModel& model : {testing::tiny_llama(), testing::tiny_qwen2(),
                                 testing::tiny_qwen3(), testing::tiny_gemma3()})
    for (Format kv : {Format::f32, Format::f16, Format::q8_0})
      EXPECT_LT(error_of(fusible(model), kv), 2e-3) << model.architecture << " " << row(kv).name;
}

TEST(PrefillPlan, FormatsMayDiffer) {
  TinyModel model = fusible(testing::tiny_llama(), Format::q4_k);
  model.exceptions = {{"blk.0.attn_v.weight", Format::q6_k},
                      {"blk.1.ffn_down.weight", Format::q5_k}};
  EXPECT_LT(error_of(model, Format::f32), 2e-3);
}

TEST(PrefillPlan, ItEndsWithTheLastKeysAndValues) {
  const Built built = build(fusible(testing::tiny_qwen3()));
  const PrefillPlan prefill = build_prefill_plan(built.plan, true).value();
  // The embedding; then norm, matrices, append, attention, output, norm, gate and up, down.
  EXPECT_EQ(prefill.plan.steps.size(), 1u + 8 + 3);
  EXPECT_EQ(prefill.plan.steps.back().key.type, KernelType::append_tokens);
  EXPECT_EQ(prefill.plan.steps.back().layer, 1);
  EXPECT_EQ(prefill.chunk.bytes, (4 + kChunk) * 4);
  EXPECT_EQ(prefill.plan.counter_bytes, 0);
  for (const Step& step : prefill.plan.steps) {
    EXPECT_EQ(step.key.grouped, step.key.type == KernelType::matmul) << step.label;
    EXPECT_EQ(step.key.tokens, kChunk) << step.label;
    const std::vector<Param> params = row(step.key.type).params(step.key);
    ASSERT_EQ(params.size(), step.operands.size()) << step.label;
    for (std::size_t i = 0; i < params.size(); ++i) {
      const Operand& operand = step.operands[i];
      if (operand.place != Place::scratch) continue;
      EXPECT_GE(operand.bytes, params[i].bytes) << step.label << " " << params[i].name;
      EXPECT_LE(operand.offset + operand.bytes, prefill.plan.arena_bytes) << step.label;
    }
  }
}

// Nothing may take the chunk's place before the last step has read it.
TEST(PrefillPlan, TheChunkStaysWhereItIs) {
  const PrefillPlan prefill =
      build_prefill_plan(build(fusible(testing::tiny_gemma3())).plan, false).value();
  const std::int64_t begin = prefill.chunk.offset, end = begin + prefill.chunk.bytes;
  for (const Step& step : prefill.plan.steps) {
    const std::vector<Param> params = row(step.key.type).params(step.key);
    for (std::size_t i = 0; i < params.size(); ++i) {
      const Operand& operand = step.operands[i];
      if (operand.place == Place::scratch && params[i].access != Access::read) {
        EXPECT_TRUE(operand.offset >= end || operand.offset + operand.bytes <= begin) << step.label;
      }
    }
  }
}

TEST(PrefillPlan, WhatCannotBeReadInChunksSaysWhy) {
  TinyModel model = fusible(testing::tiny_llama());
  const auto refused = [](const Built& built) {
    const Result<PrefillPlan> prefill = build_prefill_plan(built.plan, false);
    EXPECT_FALSE(prefill);
    return prefill ? "" : prefill.error().message;
  };
  EXPECT_EQ(refused(build(model, Format::f16, 0)), "the session's options say so");
  model.exceptions = {{"blk.0.ffn_up.weight", Format::q4_0}};
  EXPECT_EQ(refused(build(model)), "gates are q8_0 and ups q4_0; they must have one format");
  model = fusible(testing::tiny_llama());
  model.head_dim = model.rotary = 40;
  EXPECT_EQ(refused(build(model)),
            "head_dim is 40; with a KV cache of f16 it must be a multiple of 16");
}

TEST(PrefillPlan, ChunksAreNoLongerThanTheContext) {
  PlanOptions options;
  options.context = 20;
  options.chunk = 8193;
  const testing::GgufImage image = testing::tiny_model(fusible(testing::tiny_llama()));
  const auto file = GgufFile::from_bytes(image.bytes, "tiny.gguf").value();
  EXPECT_EQ(build_plan(*file, options).value().options.chunk, 20);
  options.chunk = -1;
  const Result<Plan> plan = build_plan(*file, options);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().message, "chunk is -1; it must be 0 (prompts token by token) to 8192");
}

}  // namespace
}  // namespace lathe
