// Holds the choosing of plans and of kernels' tuning to what is said of it: by figures of the GPU
// as numbers, valid for any shape, told with a reason, and set by whoever wants it otherwise.
#include "plan/selection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "lathe/codegen/kernel_table.h"
#include "plan/tuning.h"
#include "tests/plan/tiny_models.h"
#include "verification/random.h"

namespace lathe {
namespace {

using testing::fusible;
using testing::TinyModel;

Result<Plan> plan_of(const TinyModel& model, const PlanOptions& options) {
  const auto image = testing::tiny_model(model);
  const auto file = GgufFile::from_bytes(image.bytes, "tiny.gguf").value();
  return build_plan(*file, options);
}

const Selected* find(const std::vector<Selected>& choices, std::string_view what) {
  const auto found = std::ranges::find_if(
      choices, [&](const Selected& choice) { return choice.what.starts_with(what); });
  return found == choices.end() ? nullptr : &*found;
}

std::int64_t counter_bytes(const KernelKey& key) {
  const std::vector<Param> params = row(key.type).params(key);
  return std::ranges::find(params, std::string_view("counters"), &Param::name)->bytes;
}

KernelKey drawn_shape(KernelType type, verification::Random& random) {
  KernelKey key{.type = type, .format = Format::q4_k};
  if (!row(type).covers(key.format)) key.format = Format::f32;
  key.k = 256 * (1 + random.below(80));
  key.n = 1 + random.below(random.below(2) ? 200000 : 300);
  key.kv_heads = 1 + random.below(16);
  key.heads = key.kv_heads * (1 + random.below(8));
  key.head_dim = key.rotary = 64;
  const bool gated = type == KernelType::matmul && random.below(2);
  if (type == KernelType::sample) key.splits = 1 + random.below(128);
  if (type == KernelType::matmul) key.blocks = random.below(2);
  if (type >= KernelType::norm_tokens) key.tokens = 512;
  if (key.blocks || type == KernelType::attend_rows) key.tokens = 1 + random.below(32);
  if (gated) key.gated = true, key.n_b = key.n, key.format_b = key.format;
  if (type == KernelType::norm_tokens || type == KernelType::rms_norm) key.n = 1;
  // What a type does not have stays as it is by default.
  for (const KeyField& field : key_fields())
    if (!row(type).uses(field.name) && field.integer)
      key.*field.integer = KernelKey{}.*field.integer;
  if (type == KernelType::norm_tokens) key.n = 0;
  return key;
}

constexpr KernelType kTuned[] = {
    KernelType::gemv,          KernelType::rms_norm,      KernelType::attention,
    KernelType::top_k,         KernelType::sample,        KernelType::matvec,
    KernelType::attend,        KernelType::norm_tokens,   KernelType::matmul,
    KernelType::append_tokens, KernelType::attend_tokens, KernelType::attend_rows};

GpuProfile drawn_gpu(verification::Random& random) {
  GpuProfile gpu;
  gpu.multiprocessors = 1 + random.below(400);
  return gpu;
}

TEST(Selection, EveryShapeGetsAValidChoiceWithAReason) {
  const std::uint64_t seed = verification::fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  verification::Random random(seed);
  std::set<KernelType> valid;
  for (int i = 0; i < 4000 && !HasFailure(); ++i) {
    const KernelType type = kTuned[random.below(std::size(kTuned))];
    const KernelKey shape = drawn_shape(type, random);
    const GpuProfile gpu = drawn_gpu(random);
    const Result<Tuned> tuned = select_tuning(shape, gpu, {}, 1 + random.below(100000));
    ASSERT_TRUE(tuned) << shape.text() << ": " << tuned.error().text();
    EXPECT_GT(tuned->told.reason.size(), 10u);
    EXPECT_FALSE(tuned->told.value.empty());
    EXPECT_FALSE(tuned->told.set);
    const Result<void> checked = check_key(tuned->key);
    EXPECT_TRUE(checked) << checked.error().text();
    if (checked) valid.insert(type);
  }
  EXPECT_EQ(valid.size(), std::size(kTuned));
}

// Or a token's numbers would depend on how many are beside it.
TEST(Selection, FewTokensAreSharedAlikeHoweverManyThereAre) {
  const std::uint64_t seed = verification::fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  verification::Random random(seed);
  int alone = 0;
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    KernelKey shape = drawn_shape(KernelType::matmul, random);
    const GpuProfile gpu = drawn_gpu(random);
    shape.blocks = 1;
    shape.tokens = 32;
    const KernelKey most = select_tuning(shape, gpu, {}, 0)->key;
    for (const int tokens : {1, 8, 9, 16, 17}) {
      shape.tokens = tokens;
      KernelKey key = select_tuning(shape, gpu, {}, 0)->key;
      SCOPED_TRACE(key.text());
      EXPECT_GE(key.stages, most.stages);
      key.tokens = most.tokens;
      key.stages = most.stages;
      EXPECT_EQ(key, most);
    }
    if (most.stages == 1) continue;
    ++alone;  // and each block has one row block
    EXPECT_LE(most.blocks, gpu.multiprocessors);
    KernelKey four = most;  // row blocks
    four.n = 64 * (most.warps - 1) / most.splits;
    if (four.gated) four.n_b = four.n;
    EXPECT_EQ(4 * counter_bytes(most), most.blocks * counter_bytes(four)) << most.text();
  }
  EXPECT_GT(alone, 20);
}

TEST(Selection, CapabilitiesAreNumbers) {
  GpuProfile gpu;
  for (const int compute : {90, 100, 103, 120, 121, 130}) {
    gpu.compute = compute;
    EXPECT_EQ(why_not_fused(gpu), "") << compute;
  }
  for (const int compute : {80, 86, 89}) {
    gpu.compute = compute;
    EXPECT_NE(why_not_fused(gpu).find("bulk copies"), std::string::npos) << compute;
  }
  gpu.compute = 120;
  gpu.block_shared_bytes = 99 * 1024;
  EXPECT_NE(why_not_fused(gpu).find("101376 bytes of shared memory"), std::string::npos);
}

TEST(Selection, LargerGpusGetMoreBlocks) {
  KernelKey shape{.type = KernelType::attention};
  shape.heads = shape.kv_heads = 8;
  shape.head_dim = 64;
  GpuProfile small, large;
  small.multiprocessors = 20;
  EXPECT_LT(select_tuning(shape, small, {}, 32768)->key.splits,
            select_tuning(shape, large, {}, 32768)->key.splits);
}

TEST(Selection, ABlockWithLessMemoryHasFewerTilesUnderWay) {
  KernelKey shape{.type = KernelType::matvec, .format = Format::q4_k};
  shape.k = 4096;
  shape.n = 4096;
  GpuProfile less;
  less.block_shared_bytes = 128 * 1024;
  const KernelKey key = select_tuning(shape, less, {}, 0)->key;
  EXPECT_LE(int(row(key.type).geometry(key).shared_bytes), less.block_shared_bytes);
  EXPECT_LT(key.stages, select_tuning(shape, GpuProfile{}, {}, 0)->key.stages);
}

TEST(Selection, APlanTellsEachChoiceOnce) {
  for (const Fusion fusion : {Fusion::none, Fusion::automatic}) {
    PlanOptions options;
    options.fusion = fusion;
    const Result<Plan> plan = plan_of(fusible(testing::tiny_llama()), options);
    ASSERT_TRUE(plan);
    const bool fused = fusion == Fusion::automatic;
    const auto& choices = plan->choices;
    EXPECT_EQ(choices.front().what, "fusion");
    EXPECT_TRUE(choices.front().value.starts_with(fused ? "full," : "none,"));
    EXPECT_EQ(choices.front().set, !fused);
    EXPECT_TRUE(find(choices, fused ? "matvec" : "gemv"));
    EXPECT_TRUE(find(choices, fused ? "attend" : "attention"));
    EXPECT_TRUE(find(choices, "top_k"));
    for (const Selected& choice : choices) EXPECT_EQ(std::ranges::count(choices, choice), 1);
  }
}

TEST(Selection, APlanForALesserGpuSaysWhatThatLacks) {
  PlanOptions options;
  options.gpu.compute = 89;
  const Result<Plan> plan = plan_of(fusible(testing::tiny_llama()), options);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->options.fusion, Fusion::none);
  EXPECT_NE(plan->choices.front().reason.find("sm_89 has no bulk copies"), std::string::npos);
  EXPECT_EQ(plan->notes.size(), 1u);
}

TEST(Selection, WhatIsSetReplacesWhatIsChosen) {
  PlanOptions options;
  options.tuning = "fusion=none,gemv.warps=2,gemv.rows=3,attention.splits=5,rms_norm.warps=7";
  const Result<Plan> plan = plan_of(fusible(testing::tiny_llama()), options);
  ASSERT_TRUE(plan) << plan.error().text();
  for (const Step& step : plan->steps) {
    if (step.key.type == KernelType::gemv) {
      EXPECT_EQ(step.key.warps, 2);
      EXPECT_EQ(step.key.rows, 3);
    }
    if (step.key.type == KernelType::attention || step.key.type == KernelType::attention_merge) {
      EXPECT_EQ(step.key.splits, 5);
    }
    if (step.key.type == KernelType::rms_norm) {
      EXPECT_EQ(step.key.warps, 7);
    }
  }
  const Selected* gemv = find(plan->choices, "gemv");
  ASSERT_TRUE(gemv);
  EXPECT_TRUE(gemv->set);
  EXPECT_EQ(gemv->value, "warps 2, rows 3");
  EXPECT_NE(gemv->reason.find("as it was set; the rule says warps"), std::string::npos);
  EXPECT_FALSE(find(plan->choices, "top_k")->set);
  // What the caller set in a field of its own counts more than a text.
  options.attention_splits = 9;
  const Result<Plan> other = plan_of(fusible(testing::tiny_llama()), options);
  ASSERT_TRUE(other);
  EXPECT_EQ(find(other->choices, "attention")->value, "splits 9");
}

TEST(Selection, BlocksStandForMultiprocessors) {
  PlanOptions options, fewer;
  fewer.blocks = 12;
  options.tuning = "blocks=12";
  const TinyModel model = fusible(testing::tiny_llama());
  const Result<Plan> plan = plan_of(model, options), same = plan_of(model, fewer);
  ASSERT_TRUE(plan && same) << plan.error().text();
  EXPECT_EQ(find(plan->choices, "matvec")->value, find(same->choices, "matvec")->value);
  EXPECT_NE(find(plan->choices, "matvec")->value.find("blocks 12,"), std::string::npos);
  EXPECT_EQ(*find(plan->choices, "blocks"), (Selected{"blocks", "12", "as it was set", true}));
  EXPECT_FALSE(find(same->choices, "blocks"));
  // A field counts more.
  options.blocks = 14;
  EXPECT_NE(find(plan_of(model, options)->choices, "matvec")->value.find("blocks 14,"),
            std::string::npos);
  options.blocks = 0;
  options.tuning = "blocks=1025";
  EXPECT_EQ(plan_of(model, options).error().message,
            "blocks is 1025; it must be 0 (the GPU's multiprocessors) to 1024");
}

TEST(Selection, WhatCannotBeIsRefusedInASentence) {
  const auto refusal = [](const char* tuning) {
    PlanOptions options;
    options.tuning = tuning;
    const Result<Plan> plan = plan_of(fusible(testing::tiny_llama()), options);
    EXPECT_FALSE(plan) << tuning;
    if (plan) return std::string();
    EXPECT_EQ(plan.error().code, Code::invalid_argument) << tuning;
    return plan.error().message;
  };
  const auto says = [&](const char* tuning, const char* part) {
    const std::string message = refusal(tuning);
    EXPECT_NE(message.find(part), std::string::npos) << tuning << ": " << message;
  };
  says("gemv.warps", "NAME=VALUE");
  says("blocks=0", "'blocks=0' has no number above 0");
  says("blocks=4x", "'blocks=4x' has no number above 0");
  says("blocks=4,blocks=4", "'blocks=4' is set twice");
  says("gemv.wraps=2", "'gemv.wraps=2' names no choice; nearest: gemv.warps, ");
  says("fusoin=none", "'fusoin=none' names no choice; nearest: fusion, ");
  says("matvecs.stages=2", "'matvecs.stages=2' names no choice; nearest: matvec.stages, ");
  says("gemv.stages=2", "'gemv.stages=2' names no choice; nearest: ");
  says("gemv.warps=two", "has no number above 0");
  says("gemv.warps=-2", "has no number above 0");
  says("matvec.paired=2", "is neither 0 nor 1");
  says("gemv.paired=1", "names no choice");
  says("attend.matrix=2", "is neither 0 nor 1");
  says("attend_rows.matrix=1", "names no choice");
  says("nothing.warps=2", "'nothing.warps=2' names no choice");
  says("glu.warps=2", "names no choice");
  says("fusion=half", "fusion=half");
  says("executor=", "names no executor");
  says("gemv.warps=2,gemv.warps=4", "is set twice");
  says("fusion=none,fusion=full", "'fusion=full' is set twice");
  says("executor=eager,executor=graph", "'executor=graph' is set twice");
  says("matvec.stages=17", "the tuning 'matvec.stages=17' is not possible for matvec.");
  says("fusion=none,gemv.warps=17", "the tuning 'gemv.warps=17' is not possible for gemv.");
  says("matvec.stages=16,gemv.warps=1", "matvec.stages=16");
  says("top_k.splits=5000", "top_k.splits=5000");
}

TEST(Selection, TwoTilesThatDoNotFitAreRefusedByTheWordThatAskedForThem) {
  KernelKey shape{.type = KernelType::matvec, .format = Format::f16, .k = 45056, .n = 4096};
  const auto tuned = [&](const char* words) {
    return select_tuning(shape, {}, parse_tuning(words).value().kernels, 1);
  };
  EXPECT_TRUE(tuned("matvec.paired=0"));
  const Result<Tuned> refused = tuned("matvec.paired=1,matvec.stages=1");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::invalid_argument);
  EXPECT_NE(refused.error().message.find("'matvec.paired=1' is not possible for matvec.f16.k45056"),
            std::string::npos)
      << refused.error().message;
  // What no word is to blame for is told by whoever checks the key.
  shape.k = 1 << 18;
  EXPECT_TRUE(tuned("matvec.paired=1"));
  shape.k = 4096;
  const Result<Tuned> fits = tuned("matvec.paired=1");
  ASSERT_TRUE(fits);
  EXPECT_TRUE(fits->key.paired);
  EXPECT_TRUE(fits->told.set);
}

TEST(Selection, AttentionByTheMatrixUnitsIsRefusedWhereNoKernelHasIt) {
  PlanOptions options;
  options.kv = Format::f16;
  options.tuning = "attend.matrix=1";
  options.attention_splits = 2;  // takes the place of attend.splits alone
  const testing::TinyModel model = fusible(testing::tiny_llama());
  const Result<Plan> plan = plan_of(model, options);
  ASSERT_TRUE(plan) << plan.error().text();
  int attends = 0;
  for (const Step& step : plan->steps) {
    if (step.key.type != KernelType::attend) continue;
    EXPECT_TRUE(step.key.matrix) << step.key.text();
    EXPECT_EQ(step.key.splits, 2);
    ++attends;
  }
  EXPECT_EQ(attends, model.layers);
  options.kv = Format::q8_0;
  const Result<Plan> refused = plan_of(model, options);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("'attend.matrix=1' is not possible for attend.q8_0"),
            std::string::npos)
      << refused.error().message;
}

TEST(Selection, LongContextsAreAttendedByTheMatrixUnits) {
  KernelKey shape{.type = KernelType::attend, .format = Format::f16};
  shape.heads = 32;
  shape.kv_heads = 8;
  shape.head_dim = shape.rotary = 128;
  shape.scale = 0.088388346f;
  const auto by_matrix = [&](int positions, std::string_view words = "") {
    const auto set = parse_tuning(words);
    EXPECT_TRUE(set);
    const Result<Tuned> out = select_tuning(shape, {}, set->kernels, positions);
    EXPECT_TRUE(out) << out.error().text();
    return out && out->key.matrix;
  };
  EXPECT_FALSE(by_matrix(8192));
  EXPECT_TRUE(by_matrix(8193));
  EXPECT_FALSE(by_matrix(32768, "attend.matrix=0"));
  EXPECT_TRUE(by_matrix(128, "attend.matrix=1"));
  shape.format = Format::q8_0;
  EXPECT_FALSE(by_matrix(32768));
  shape.format = Format::f16;
  shape.heads = 72;
  EXPECT_FALSE(by_matrix(32768));
}

// By layer, whether a plan's attention has the matrix units.
std::vector<bool> layers_by_matrix(testing::TinyModel model, Format kv, int context) {
  model.context = 16384;
  PlanOptions options;
  options.kv = kv;
  options.context = context;
  options.fusion = Fusion::full;
  const Result<Plan> plan = plan_of(fusible(model), options);
  EXPECT_TRUE(plan) << plan.error().text();
  std::vector<bool> layers;
  if (!plan) return layers;
  for (const Step& step : plan->steps)
    if (step.key.type == KernelType::attend) layers.push_back(step.key.matrix);
  return layers;
}

TEST(Selection, ALayersAttentionGoesByWhatATokenSeesInIt) {
  testing::TinyModel model = testing::tiny_llama();
  const std::vector<bool> none(std::size_t(model.layers)), all(std::size_t(model.layers), true);
  EXPECT_EQ(layers_by_matrix(model, Format::f16, 8192), none);
  EXPECT_EQ(layers_by_matrix(model, Format::f16, 8193), all);
  EXPECT_EQ(layers_by_matrix(model, Format::f32, 8193), none);
  // Of its layers some have a window.
  const std::vector<bool> mixed = layers_by_matrix(testing::tiny_gemma3(), Format::f16, 8193);
  EXPECT_EQ(std::ranges::count(mixed, true), 1);
  EXPECT_GT(mixed.size(), 1u);
}

TEST(Selection, AnUnknownNameHasAllThatAreKnownBesideIt) {
  PlanOptions options;
  options.tuning = "gemv.wraps=2";
  const Result<Plan> plan = plan_of(fusible(testing::tiny_llama()), options);
  ASSERT_FALSE(plan);
  ASSERT_EQ(plan.error().details.size(), 1u);
  EXPECT_EQ(plan.error().details[0].name, "known");
  const std::string known = ", " + plan.error().details[0].value + ",";
  for (const char* name :
       {"fusion", "executor", "gemv.warps", "gemv.rows", "rms_norm.warps", "norm_tokens.warps",
        "attention.splits", "attend.splits", "attend.matrix", "matvec.blocks", "matvec.stages",
        "matvec.paired", "top_k.splits", "top_k.warps", "sample.warps"})
    EXPECT_NE(known.find(std::string(", ") + name + ","), std::string::npos) << name;
}

}  // namespace
}  // namespace lathe
