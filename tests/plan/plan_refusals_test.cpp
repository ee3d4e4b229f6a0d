// Owns the tests of what no plan is made of: wrong files, specs and options, and how they are
// named.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/plan/tiny_plans.h"

namespace lathe {
namespace {

using testing::all_families;
using testing::build;
using testing::GgufWriter;
using testing::plan_of;
using testing::TinyModel;

using Change = std::function<void(GgufWriter&)>;

void expect_refused(const TinyModel& model, const Change& change, Code code,
                    std::initializer_list<std::string_view> parts) {
  GgufWriter writer = testing::tiny_model_writer(model);
  change(writer);
  const auto plan = build(writer);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, code) << plan.error().text();
  for (const std::string_view part : parts) {
    EXPECT_NE(plan.error().message.find(part), std::string::npos)
        << "got: " << plan.error().message << "\nwanted: " << part;
  }
}

TEST(PlanRefusals, MissingTensorsAreNamed) {
  for (const TinyModel& model : all_families()) {
    const Plan plan = plan_of(model);
    for (const WeightSlot& slot : plan.weights) {
      if (slot.name == "output.weight") continue;  // a tied head is no error
      expect_refused(model, [&](GgufWriter& writer) { writer.drop(slot.name); }, Code::not_found,
                     {slot.name});
    }
  }
}

TEST(PlanRefusals, WrongShapesShowBothNumbers) {
  expect_refused(
      testing::tiny_llama(),
      [](GgufWriter& writer) {
        writer.drop("blk.1.ffn_up.weight");
        writer.tensor("blk.1.ffn_up.weight", {64, 95}, 0, std::vector<std::byte>(64 * 95 * 4));
      },
      Code::corrupt_file, {"'blk.1.ffn_up.weight'", "95 x 64", "96 x 64"});
  expect_refused(testing::tiny_llama(),
                 [](GgufWriter& writer) {
                   writer.drop("blk.0.attn_norm.weight");
                   writer.tensor("blk.0.attn_norm.weight", {32}, 0, std::vector<std::byte>(128));
                 },
                 Code::corrupt_file, {"'blk.0.attn_norm.weight'", "32", "64"});
  expect_refused(
      testing::tiny_llama(),
      [](GgufWriter& writer) {
        writer.drop("blk.0.attn_q.weight");
        writer.tensor("blk.0.attn_q.weight", {64, 8, 8}, 0, std::vector<std::byte>(64 * 64 * 4));
      },
      Code::corrupt_file, {"8 x 8 x 64", "64 x 64"});
}

TEST(PlanRefusals, UnreadTensorsAreNamed) {
  expect_refused(testing::tiny_llama(),
                 [](GgufWriter& writer) {
                   writer.tensor("blk.0.attn_output.bias", {64}, 0, std::vector<std::byte>(256));
                 },
                 Code::unsupported, {"'blk.0.attn_output.bias'"});
  TinyModel factors = testing::tiny_qwen3();
  factors.rope_factors = true;
  expect_refused(factors, [](GgufWriter&) {}, Code::unsupported, {"'rope_freqs.weight'"});
}

TEST(PlanRefusals, TensorTypesAreNamed) {
  constexpr std::uint32_t kF16 = 1;
  constexpr std::uint32_t kUnknownType = 9999;
  expect_refused(testing::tiny_llama(),
                 [](GgufWriter& writer) {
                   writer.drop("output_norm.weight");
                   writer.tensor("output_norm.weight", {64}, kF16, std::vector<std::byte>(128));
                 },
                 Code::unsupported, {"'output_norm.weight'", "f16", "f32"});
  expect_refused(
      testing::tiny_llama(),
      [](GgufWriter& writer) {
        writer.drop("output.weight");
        writer.tensor("output.weight", {64, 80}, kUnknownType, std::vector<std::byte>(128));
      },
      Code::unsupported, {"'output.weight'", "9999"});
}

TEST(PlanRefusals, ShapesWithoutAKernelAreNamed) {
  TinyModel model = testing::tiny_llama();
  model.head_dim = model.rotary = 512;
  GgufWriter writer = testing::tiny_model_writer(model);
  const auto plan = build(writer);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, Code::unsupported);
  EXPECT_NE(plan.error().text().find("attention"), std::string::npos);
}

TEST(PlanRefusals, BadOptionsAreRefused) {
  const GgufWriter writer = testing::tiny_model_writer(testing::tiny_llama());
  const auto refused = [&](const PlanOptions& options, std::string_view part) {
    const auto plan = build(writer, options);
    ASSERT_FALSE(plan);
    EXPECT_NE(plan.error().message.find(part), std::string::npos) << plan.error().message;
  };
  refused({.context = -1}, "context is -1");
  refused({.context = 65}, "context is 65 positions; it must be 1 to the 64");
  refused({.kv = Format::q8_0}, "KV cache in q8_0");
  refused({.attention_splits = -1}, "attention_splits is -1");
  refused({.attention_splits = 65}, "attention_splits is 65");
}

// Positions in a row have numbers below 2^31; of a cache in pages the entries of its table have.
TEST(PlanRefusals, SequencesOfALongContextAreThoseThatKernelsCanTellApart) {
  constexpr int kLong = 1 << 24;
  TinyModel model = testing::tiny_llama();
  model.context = kLong;
  const GgufWriter writer = testing::tiny_model_writer(model);
  const auto plan = [&](int sequences, int pages) {
    return build(writer, {.context = kLong, .sequences = sequences, .kv_pages = pages});
  };
  EXPECT_TRUE(plan(127, 0));
  EXPECT_TRUE(plan(2047, 1 << 22));
  for (const auto& [sequences, pages, part] :
       {std::tuple(0, 0, "sequences is 0; it must be 1 to 4096, and times 16777216 positions less"),
        std::tuple(128, 0, "sequences is 128; it must be 1 to 4096, and times 16777216 positions"),
        std::tuple(2048, 64, "sequences is 2048; it must be 1 to 4096, and times 1048576 pages of"),
        std::tuple(4097, 64, "sequences is 4097"), std::tuple(1, -1, "kv_pages is -1")}) {
    const auto refused = plan(sequences, pages);
    ASSERT_FALSE(refused) << part;
    EXPECT_EQ(refused.error().code, Code::invalid_argument);
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  }
}

// The table of pages has 4 bytes for each 16 positions of each sequence. A page of the model has 16
// keys and values of f32 in each layer.
TEST(PlanRefusals, PagesAreNoFewerBytesThanTheirTable) {
  TinyModel model = testing::tiny_llama();
  model.context = 16 * 4095;
  const GgufWriter writer = testing::tiny_model_writer(model);
  const std::int64_t page = 2ll * 16 * 4 * model.layers * model.kv_heads * model.head_dim;
  const std::int64_t table = 4ll * 4095 * 4095;
  const auto least = int((table + page - 1) / page);
  ASSERT_NE(table % page, 0);
  const auto plan = [&](Format kv, int pages) {
    return build(writer,
                 {.context = model.context, .kv = kv, .sequences = 4095, .kv_pages = pages});
  };
  EXPECT_TRUE(plan(Format::f32, least));
  EXPECT_TRUE(plan(Format::f16, 2 * least));
  for (const auto& [kv, pages] : {std::pair(Format::f32, least - 1), {Format::f16, least}}) {
    const auto refused = plan(kv, pages);
    ASSERT_FALSE(refused) << pages;
    EXPECT_EQ(refused.error().code, Code::invalid_argument);
    for (const std::string& part :
         {"kv_pages is " + std::to_string(pages) + "; the table of the pages of 4095 sequences",
          "takes " + std::to_string(table) + " bytes"})
      EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  }
  // A part's pages have its layers alone.
  PlanOptions part = {.context = model.context, .sequences = 4095, .kv_pages = least};
  part.part = {.layers = 1, .output = PartOutput::hidden};
  EXPECT_EQ(build(writer, part).error().code, Code::invalid_argument);
  part.kv_pages = 2 * least;
  EXPECT_TRUE(build(writer, part));
}

TEST(PlanRefusals, InconsistentSpecsAreRefused) {
  const auto image = testing::tiny_model(testing::tiny_llama());
  const auto file = GgufFile::from_bytes(image.bytes, "tiny.gguf");
  ASSERT_TRUE(file);
  const auto good = read_model_spec(**file);
  ASSERT_TRUE(good);
  const auto refused = [&](const std::function<void(ModelSpec&)>& change) {
    ModelSpec spec = *good;
    change(spec);
    const auto plan = build_plan(**file, spec, {});
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().code, Code::invalid_argument);
  };
  refused([](ModelSpec& spec) { spec.layers = 0; });
  refused([](ModelSpec& spec) { spec.kv_heads = 3; });
  refused([](ModelSpec& spec) { spec.head_dim = 1 << 30; });
  refused([](ModelSpec& spec) { spec.ropes.clear(); });
  refused([](ModelSpec& spec) { spec.per_layer[0].rope = 1; });
  refused([](ModelSpec& spec) { spec.per_layer.pop_back(); });
}

}  // namespace
}  // namespace lathe
