// Holds the measured kernels to the plans of models that everybody knows.
#include "bench/kernels/subjects.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace lathe::bench::kernels {
namespace {

Selection everything() {
  Selection selection;
  for (const Model& model : models()) selection.models.push_back(&model);
  selection.stages.assign(std::begin(kStages), std::end(kStages));
  selection.plan.kv = Format::f16;
  selection.plan.context = 4096;
  return selection;
}

std::vector<Subject> subjects(const Selection& selection, std::vector<std::string>* notes = nullptr,
                              const char* target = "sm_90a") {
  auto found = subjects_of(selection, *parse_target(target), 132, [&](const std::string& note) {
    if (notes) notes->push_back(note);
  });
  EXPECT_TRUE(found) << found.error().text();
  return found ? std::move(*found) : std::vector<Subject>();
}

TEST(KernelSubjects, AllOfTheTableButWhatNoPlanHas) {
  std::vector<std::string> notes;
  std::set<KernelType> seen;
  std::set<std::string> keys;
  for (const Subject& subject : subjects(everything(), &notes)) {
    seen.insert(subject.key.type);
    EXPECT_TRUE(check_key(subject.key)) << subject.key.text();
    EXPECT_FALSE(subject.uses.empty());
    EXPECT_TRUE(keys.insert(subject.key.text()).second) << subject.key.text() << " comes twice";
  }
  EXPECT_EQ(notes, std::vector<std::string>{});
  for (const KernelRow& kernel : kernel_table()) {
    const bool dense = kernel.type == KernelType::gemm || kernel.type == KernelType::gemm_operand;
    const bool in_plans =
        (kernel.type < KernelType::argmax || kernel.type >= KernelType::matvec) && !dense;
    EXPECT_EQ(seen.contains(kernel.type), in_plans) << kernel.name;
  }
}

TEST(KernelSubjects, AnEightBillionLlamaHasTheShapesOfItsFiles) {
  Selection selection = everything();
  selection.models = {*model_by_name("llama-3.1-8b")};
  selection.stages = {Stage::decode};
  std::vector<std::string> shapes;
  for (const Subject& subject : subjects(selection)) {
    const KernelKey& key = subject.key;
    EXPECT_EQ(subject.uses, "llama-3.1-8b decode");
    if (key.type != KernelType::matvec) continue;
    shapes.push_back(row(key.format).name + std::string(" ") + std::to_string(key.k) + " " +
                     std::to_string(key.n) + " " + std::to_string(key.n_b) + " " +
                     row(key.format_c).name);
  }
  std::ranges::sort(shapes);
  EXPECT_EQ(shapes, (std::vector<std::string>{"q4_k 14336 4096 0 f32", "q4_k 4096 14336 14336 f32",
                                              "q4_k 4096 4096 0 f32", "q4_k 4096 4096 1024 q4_k",
                                              "q4_k 4096 4096 1024 q6_k", "q6_k 14336 4096 0 f32",
                                              "q6_k 4096 128256 0 f32"}));
}

TEST(KernelSubjects, HalfOfTheDownProjectionsHaveMoreBits) {
  const Model& model = **model_by_name("llama-3.1-8b");
  int large = 0;
  for (int layer = 0; layer < model.layers; ++layer)
    large += stored_format(model, {}, "ffn_down", layer, model.ffn) == Format::q6_k;
  EXPECT_EQ(large, 16);
  EXPECT_EQ(stored_format(model, {}, "ffn_up", 0, model.hidden), Format::q4_k);
  EXPECT_EQ(stored_format(model, {}, "token_embd", -1, model.hidden), Format::q4_k);
  EXPECT_EQ(stored_format(model, {Format::q8_0}, "output", -1, model.hidden), Format::q8_0);
}

TEST(KernelSubjects, RowsThatNoBlockDividesAreStoredOtherwise) {
  const Model& small = **model_by_name("smollm2-135m");
  EXPECT_EQ(stored_format(small, {}, "attn_q", 0, small.hidden), Format::q5_0);
  EXPECT_EQ(stored_format(small, {}, "token_embd", -1, small.hidden), Format::q8_0);
  EXPECT_EQ(stored_format(small, {}, "ffn_down", 0, small.ffn), Format::q6_k);
  EXPECT_EQ(stored_format(small, {Format::q3_k}, "attn_q", 0, small.hidden), Format::iq4_nl);
}

TEST(KernelSubjects, AFilterLeavesWhatItFinds) {
  Selection selection = everything();
  selection.filter = "^(glu|rope)";
  for (const Subject& subject : subjects(selection))
    EXPECT_TRUE(subject.key.type == KernelType::glu || subject.key.type == KernelType::rope);
  selection.filter = "nothing like it";
  EXPECT_FALSE(subjects_of(selection, *parse_target("sm_90a"), 132, [](const std::string&) {}));
  selection.filter = "(";
  const auto refused =
      subjects_of(selection, *parse_target("sm_90a"), 132, [](const std::string&) {});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("'('"), std::string::npos);
}

TEST(KernelSubjects, WhatATargetOrAFormatLacksIsANote) {
  Selection selection = everything();
  std::vector<std::string> notes;
  for (const Subject& subject : subjects(selection, &notes, "sm_80"))
    EXPECT_NE(subject.key.type, KernelType::matvec);
  EXPECT_EQ(notes.size(), 4 * models().size());
  EXPECT_NE(notes[0].find("llama-3.1-8b decode is left out: sm_80"), std::string::npos) << notes[0];
  notes.clear();
  selection.mix = {Format::f32};
  EXPECT_FALSE(subjects(selection, &notes).empty());
  EXPECT_EQ(notes.size(), 4 * models().size());
}

TEST(KernelSubjects, KernelsCanBeNamed) {
  const auto named = named_subjects({"argmax.f32.n1000.s2"});
  ASSERT_TRUE(named) << named.error().text();
  EXPECT_EQ((*named)[0].key.n, 1000);
  EXPECT_FALSE(named_subjects({"argmin.f32"}));
  EXPECT_FALSE(named_subjects({"gemv.q4_k.k100.n8"}));
}

}  // namespace
}  // namespace lathe::bench::kernels
