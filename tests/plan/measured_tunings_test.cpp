// Holds the table of measured tunings to its text, and plans to what it has.
#include "lathe/plan/measured_tunings.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lathe/plan/plan.h"
#include "tests/plan/tiny_models.h"

namespace lathe {
namespace {

using testing::fusible;

constexpr const char* kRow =
    "90 132 llama 4096 14336 q4_k matvec.paired=1,executor=graph 745.25 640";

std::shared_ptr<const GgufFile> tiny_file() {
  static const auto image = testing::tiny_model(fusible(testing::tiny_llama()));
  return GgufFile::from_bytes(image.bytes, "tiny.gguf").value();
}

const Selected* find(const std::vector<Selected>& choices, std::string_view what) {
  const auto found = std::ranges::find_if(
      choices, [&](const Selected& choice) { return choice.what.starts_with(what); });
  return found == choices.end() ? nullptr : &*found;
}

TEST(MeasuredTunings, AreReadAndWrittenAsText) {
  const auto read = parse_measured_tunings(std::string("# a word\n\n  ") + kRow + "\r\n" +
                                           "120 170 qwen3 1024 3072 q8_0 gemv.rows=2 9e3 8e3");
  ASSERT_TRUE(read) << read.error().text();
  ASSERT_EQ(read->size(), 2u);
  const MeasuredTuning& first = read->front();
  EXPECT_EQ(first.of, (TuningClass{90, 132, "llama", 4096, 14336, Format::q4_k}));
  EXPECT_EQ(first.words, "matvec.paired=1,executor=graph");
  EXPECT_EQ(first.rate, 745.25);
  EXPECT_EQ(first.by_rules, 640);
  EXPECT_EQ(parse_measured_tunings(measured_tunings_text(*read)).value(), *read);
  EXPECT_EQ(find_tuning(*read, first.of), &first);
  TuningClass other = first.of;
  other.multiprocessors = 114;
  EXPECT_EQ(find_tuning(*read, other), nullptr);
}

TEST(MeasuredTunings, TheLibrarysOwnCanBeRead) {
  const auto brought = measured_tunings();
  ASSERT_TRUE(brought) << brought.error().text();
  for (const auto& [of, words] :
       {std::pair(TuningClass{90, 132, "llama", 576, 1536, Format::q4_1}, "blocks=96"),
        std::pair(TuningClass{90, 132, "llama", 3072, 8192, Format::q4_k}, "matvec.paired=1"),
        std::pair(TuningClass{90, 132, "llama", 4096, 14336, Format::q4_k}, "matvec.paired=1"),
        std::pair(TuningClass{90, 132, "llama", 8192, 28672, Format::q4_k}, "matvec.paired=1"),
        std::pair(TuningClass{90, 132, "qwen3", 1024, 3072, Format::q8_0}, "blocks=99"),
        std::pair(TuningClass{90, 132, "qwen3", 4096, 12288, Format::q4_k}, "matvec.paired=1")}) {
    const MeasuredTuning* row = find_tuning(*brought, of);
    ASSERT_NE(row, nullptr) << of.family << ' ' << of.hidden;
    EXPECT_EQ(row->words, words);
    EXPECT_GT(row->rate, row->by_rules);
  }
}

TEST(MeasuredTunings, ALineThatMakesNoSenseIsNamed) {
  for (const auto& [line, part] : {
           std::pair("90 132 llama 4096 14336 q4_k gemv.rows=2 640", "nine columns"),
           std::pair("90 132 llama 4096 14336 q4_k gemv.rows=2 640 1 1", "nine columns"),
           std::pair("90 many llama 4096 14336 q4_k gemv.rows=2 640 1", "nine columns"),
           std::pair("90 0 llama 4096 14336 q4_k gemv.rows=2 640 1", "number below 1"),
           std::pair("90 132 llama 4096 14336 q4_k gemv.rows=2 0 1", "speed that is none"),
           std::pair("90 132 llama 4096 14336 q4_k gemv.rows=2 -1 1", "speed that is none"),
           std::pair("90 132 llama 4096 14336 q9 gemv.rows=2 640 1", "q9"),
           std::pair("90 132 llama 4096 14336 q4_k gemv.raws=2 640 1", "'gemv.raws=2' names no"),
           std::pair("90 132 llama 4096 14336 q4_k fusion=none 640 1", "sets fusion"),
           std::pair("90 132 llama 4096 14336 q4_k blocks=1025 640 1", "more than 1024 blocks"),
           std::pair(kRow, "a class that another line has"),
       }) {
    const auto read = parse_measured_tunings(std::string(kRow) + "\n" + line + "\n");
    ASSERT_FALSE(read) << line;
    EXPECT_EQ(read.error().code, Code::invalid_argument);
    EXPECT_TRUE(read.error().message.starts_with("line 2 of the table of tunings ")) << line;
    EXPECT_NE(read.error().message.find(part), std::string::npos) << read.error().text();
  }
}

TEST(MeasuredTunings, AModelsClassIsOfItsGpuItsSizesAndMostOfItsWeights) {
  const auto file = tiny_file();
  const ModelSpec spec = read_model_spec(*file).value();
  GpuProfile gpu;
  gpu.multiprocessors = 78;
  const TuningClass of = tuning_class(*file, spec, gpu);
  EXPECT_EQ(of.compute, gpu.compute);
  EXPECT_EQ(of.multiprocessors, 78);
  EXPECT_EQ(of.family, "llama");
  EXPECT_EQ(of.hidden, spec.hidden);
  EXPECT_EQ(of.ffn, spec.ffn);
  std::int64_t bytes = 0, most = 0;
  for (const Format format : {Format::f32, Format::f16, Format::q4_k, Format::q6_k, Format::q8_0}) {
    std::int64_t sum = 0;
    for (const GgufTensor& tensor : file->tensors())
      if (tensor.dims.size() > 1 && tensor.ggml_type == row(format).ggml_type) sum += tensor.bytes;
    most = std::max(most, sum);
    if (format == of.weights) bytes = sum;
  }
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(bytes, most);
}

TEST(MeasuredTunings, CountWhereNothingIsSet) {
  PlanOptions options;
  options.measured = "matvec.stages=1,attend.splits=3,blocks=20";
  options.tuning = "attend.splits=2";
  const Result<Plan> plan = build_plan(*tiny_file(), options);
  ASSERT_TRUE(plan) << plan.error().text();
  const Selected* products = find(plan->choices, "matvec");
  ASSERT_TRUE(products);
  EXPECT_FALSE(products->set);
  EXPECT_TRUE(products->value.starts_with("blocks 20,")) << products->value;
  EXPECT_EQ(*find(plan->choices, "blocks"),
            (Selected{"blocks", "20", "the fastest measured for this model on this GPU", false}));
  EXPECT_TRUE(products->value.ends_with("stages 1")) << products->value;
  EXPECT_TRUE(products->reason.starts_with(
      "the fastest measured for this model on this GPU; the rule says blocks"))
      << products->reason;
  const Selected* attention = find(plan->choices, "attend");
  ASSERT_TRUE(attention);
  EXPECT_TRUE(attention->set);
  EXPECT_TRUE(attention->value.starts_with("splits 2")) << attention->value;
  EXPECT_TRUE(attention->reason.starts_with("as it was set")) << attention->reason;
}

TEST(MeasuredTunings, WhatIsNotPossibleIsLeftOut) {
  PlanOptions options;
  const Result<Plan> rules = build_plan(*tiny_file(), options);
  options.measured = "matvec.stages=99";
  const Result<Plan> plan = build_plan(*tiny_file(), options);
  ASSERT_TRUE(rules && plan) << plan.error().text();
  EXPECT_EQ(plan->choices, rules->choices);
  // And what is possible beside it is not.
  options.measured = "matvec.blocks=3,matvec.stages=99";
  const Result<Plan> other = build_plan(*tiny_file(), options);
  ASSERT_TRUE(other) << other.error().text();
  EXPECT_TRUE(find(other->choices, "matvec")->value.starts_with("blocks 3,"));
  options.tuning = "matvec.stages=99";
  EXPECT_FALSE(build_plan(*tiny_file(), options));
}

}  // namespace
}  // namespace lathe
