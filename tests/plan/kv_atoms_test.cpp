// Holds plans whose KV cache is of atoms to the reference model, and their tables to what they
// promise.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lathe/plan/plan.h"
#include "tests/plan/plan_interpreter.h"
#include "tests/plan/reference_model.h"
#include "tests/plan/tiny_models.h"

namespace lathe::testing {
namespace {

Result<Plan> plan_of(const TinyModel& model, const KvAtoms& atoms, PlanOptions options = {}) {
  const auto image = tiny_model(model);
  const auto file = GgufFile::from_bytes(image.bytes, "tiny.gguf");
  EXPECT_TRUE(file);
  options.atoms = atoms;
  return build_plan(**file, options);
}

// Of the logits of some tokens, relative to the reference's, which rounds nowhere.
double error_of(const TinyModel& model, const KvAtoms& atoms) {
  const auto image = tiny_model(model);
  const auto file = GgufFile::from_bytes(image.bytes, "tiny.gguf");
  PlanOptions options;
  options.atoms = atoms;
  const auto plan = build_plan(**file, options);
  EXPECT_TRUE(plan) << (plan ? "" : plan.error().text());
  if (!plan) return INFINITY;
  ReferenceModel reference(model, **file);
  PlanInterpreter interpreter(*plan, **file);
  double difference = 0, size = 0;
  for (int i = 0; i < 12; ++i) {
    const std::int32_t token = (i * 37 + 11) % model.vocab;
    const std::vector<double> wanted = reference.step(token);
    const std::span<const float> got = interpreter.step(token);
    for (std::size_t j = 0; j < wanted.size(); ++j) {
      difference += (got[j] - wanted[j]) * (got[j] - wanted[j]);
      size += wanted[j] * wanted[j];
    }
  }
  const double error = std::sqrt(difference / size);
  return std::isnan(error) ? INFINITY : error;
}

// The axes with a term for each are numbers in f16: what such a cache costs, and no more.
TEST(KvAtomsPlan, AxesAreAnF16Cache) {
  for (const TinyModel& model : all_families())
    EXPECT_LT(error_of(model, {.count = model.head_dim, .terms = model.head_dim}), 5e-3)
        << model.architecture;
}

TEST(KvAtomsPlan, MoreTermsAreNearer) {
  const TinyModel model = tiny_llama();
  const double two = error_of(model, {.count = 64, .terms = 2});
  const double four = error_of(model, {.count = 64, .terms = 4});
  const double twelve = error_of(model, {.count = 64, .terms = 12});
  EXPECT_LT(four, two);
  EXPECT_LT(twelve, four / 4);
  EXPECT_GT(twelve, 0);
}

TEST(KvAtomsPlan, OwnAtomsAreTheAxesAndDirectionsAlwaysTheSame) {
  const TinyModel model = tiny_llama();
  const auto plan = plan_of(model, {.count = 40, .terms = 3});
  ASSERT_TRUE(plan) << plan.error().text();
  ASSERT_EQ(plan->tables.size(), plan->spec.ropes.size() + 1);
  const Table& atoms = plan->tables.back();
  EXPECT_EQ(atoms.name, "atoms");
  const auto d = static_cast<std::size_t>(model.head_dim);
  ASSERT_EQ(atoms.values.size(), 40 * d);
  for (std::size_t i = 0; i < 40; ++i) {
    double squares = 0;
    for (std::size_t e = 0; e < d; ++e)
      squares += atoms.values[i * d + e] * atoms.values[i * d + e];
    EXPECT_NEAR(squares, 1, 1e-5);
    if (i < d) {
      EXPECT_EQ(atoms.values[i * d + i], 1);
    }
  }
  EXPECT_NE(atoms.values[d * d], atoms.values[d * d + d]);
  EXPECT_EQ(plan_of(model, {.count = 40, .terms = 5})->tables.back().values, atoms.values);
  EXPECT_FLOAT_EQ(atoms.values[d * d], 0.39143729f);
}

TEST(KvAtomsPlan, EachLayerHasItsOwnTables) {
  TinyModel model = tiny_llama();
  const auto d = static_cast<std::size_t>(model.head_dim);
  const auto tables = static_cast<std::size_t>(2 * model.layers);
  KvAtoms atoms{.count = 3, .terms = 2};
  atoms.values.assign(tables * 3 * d, 0);
  for (std::size_t i = 0; i < 3 * tables; ++i) atoms.values[i * d + i % d] = i % 2 ? 1.0f : -1.0f;
  const auto plan = plan_of(model, atoms);
  ASSERT_TRUE(plan) << plan.error().text();
  ASSERT_EQ(plan->tables.size(), plan->spec.ropes.size() + tables);
  EXPECT_TRUE(plan->options.atoms.values.empty());
  for (std::size_t i = 0; i < tables; ++i) {
    const int number = plan->atom_table(static_cast<int>(i / 2), i % 2 == 1);
    const Table& table = plan->tables[static_cast<std::size_t>(number)];
    EXPECT_EQ(table.name, (i % 2 ? "v_atoms" : "k_atoms") + std::to_string(i / 2));
    const auto first = atoms.values.begin() + static_cast<std::ptrdiff_t>(i * 3 * d);
    EXPECT_TRUE(std::equal(table.values.begin(), table.values.end(), first));
  }
  int seen = 0;
  for (const Step& step : plan->steps) {
    const bool appends = step.key.type == KernelType::kv_append;
    if (!appends && step.key.type != KernelType::attention) continue;
    EXPECT_EQ(step.operands[appends ? 3 : 4].index, plan->atom_table(step.layer, false));
    EXPECT_EQ(step.operands[appends ? 4 : 5].index, plan->atom_table(step.layer, true));
    ++seen;
  }
  EXPECT_EQ(seen, 2 * model.layers);

  PlanOptions options;  // the second layer alone
  options.part = {.first_layer = 1, .layers = 1, .input = PartInput::hidden};
  atoms.values.erase(atoms.values.begin(),
                     atoms.values.begin() + static_cast<std::ptrdiff_t>(2 * 3 * d));
  const auto part = plan_of(model, atoms, options);
  ASSERT_TRUE(part) << part.error().text();
  EXPECT_EQ(part->tables.back().name, "v_atoms0");
  EXPECT_EQ(part->tables.back().values, plan->tables.back().values);
}

TEST(KvAtomsPlan, SaysWhatItIs) {
  const TinyModel model = fusible(tiny_llama());
  PlanOptions options;
  options.kv = Format::f16;  // is not what counts
  options.context = 32;
  const auto plan = plan_of(model, {.count = 256, .terms = 6}, options);
  ASSERT_TRUE(plan) << plan.error().text();
  EXPECT_EQ(plan->kv_text(), "sums of 6 of 256 atoms");
  EXPECT_NE(plan->to_text().find("KV cache sums of 6 of 256 atoms"), std::string::npos);
  EXPECT_NE(plan->to_json().find("\"kv\": \"atoms\""), std::string::npos);
  EXPECT_NE(plan->to_json().find("\"atoms\": 256"), std::string::npos);
  EXPECT_EQ(plan->kv_bytes_per_position(), model.kv_heads * 6 * 4);
  EXPECT_EQ(plan->options.fusion, Fusion::none);
  ASSERT_FALSE(plan->notes.empty());
  EXPECT_NE(plan->notes.back().find("a KV cache of atoms"), std::string::npos);
  EXPECT_FALSE(build_prefill_plan(*plan, false));
}

TEST(KvAtomsPlan, RefusesWhatCannotBe) {
  const auto expect_refused = [](const KvAtoms& atoms, const char* words,
                                 const PlanOptions& options = {},
                                 const TinyModel& model = tiny_llama()) {
    const auto plan = plan_of(model, atoms, options);
    ASSERT_FALSE(plan) << words;
    EXPECT_NE(plan.error().message.find(words), std::string::npos) << plan.error().message;
  };
  const auto d = static_cast<std::size_t>(tiny_llama().head_dim);
  expect_refused({.count = -1}, "atoms is -1");
  expect_refused({.count = kMostAtoms + 1}, "atoms is 65537; it must be between 1 and 65536");
  expect_refused({.count = 8, .terms = 0}, "terms is 0");
  expect_refused({.count = 8, .terms = kMostTerms + 1}, "terms is 65");
  expect_refused({.count = 0, .values = {1}}, "1 values were given, and no count");
  expect_refused({.count = 2, .values = std::vector<float>(d)}, "16 values were given; 2 atoms of");
  std::vector<float> values(2 * d);
  values[0] = 1;
  values[d] = 1.002f;
  expect_refused({.count = 2, .values = values}, "atom 1 is 1.002");
  values[d] = NAN;
  expect_refused({.count = 2, .values = values}, "atom 1 is nan long");
  std::vector<float> layers(4 * d);
  for (std::size_t i = 0; i < 4; ++i) layers[i * d] = 1;
  layers[3 * d + 1] = 2;
  expect_refused({.count = 1, .values = layers}, "atom 0 of the values of layer 1 is 2.23");
  PlanOptions options;
  options.fusion = Fusion::full;
  expect_refused({.count = 8}, "no fused ones", options, fusible(tiny_llama()));
  options = {};
  options.sequences = 2;
  expect_refused({.count = 8}, "no batches", options);
  options = {};
  options.kv_pages = 3;
  expect_refused({.count = 8}, "in a row", options);
}

}  // namespace
}  // namespace lathe::testing
