// Owns the tests of step_dependencies: enough edges that no two steps race, and no more than needed
// for the ones that are meant to run together.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lathe/codegen/kernel_table.h"
#include "tests/plan/tiny_plans.h"

namespace lathe {
namespace {

using testing::plan_of;

// Byte by byte where the arena is concerned, and by name elsewhere: not the code under test.
bool race(const Step& a, const Step& b) {
  const std::vector<Param> of_a = row(a.key.type).params(a.key);
  const std::vector<Param> of_b = row(b.key.type).params(b.key);
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    for (std::size_t j = 0; j < of_b.size(); ++j) {
      const Operand &x = a.operands[i], &y = b.operands[j];
      if (of_a[i].access == Access::read && of_b[j].access == Access::read) continue;
      if (x.place != y.place || x.index != y.index) continue;
      if (x.place == Place::kv_k || x.place == Place::kv_v) return true;
      if (std::max(x.offset, y.offset) < std::min(x.offset + x.bytes, y.offset + y.bytes))
        return true;
    }
  }
  return false;
}

std::vector<std::vector<bool>> ancestors(const std::vector<std::vector<int>>& dependencies) {
  const std::size_t count = dependencies.size();
  std::vector<std::vector<bool>> out(count, std::vector<bool>(count));
  for (std::size_t i = 0; i < count; ++i) {
    for (int j : dependencies[i]) {
      out[i][static_cast<std::size_t>(j)] = true;
      for (std::size_t k = 0; k < count; ++k)
        if (out[static_cast<std::size_t>(j)][k]) out[i][k] = true;
    }
  }
  return out;
}

std::size_t find_step(const Plan& plan, const std::string& label, int layer) {
  const auto found = std::ranges::find_if(
      plan.steps, [&](const Step& step) { return step.label == label && step.layer == layer; });
  EXPECT_NE(found, plan.steps.end()) << label;
  return static_cast<std::size_t>(found - plan.steps.begin());
}

class Dependencies : public ::testing::TestWithParam<testing::TinyModel (*)()> {};

TEST_P(Dependencies, OrderEveryPairThatTouchesTheSameBytes) {
  const Plan plan = plan_of(GetParam()());
  const auto dependencies = step_dependencies(plan);
  ASSERT_EQ(dependencies.size(), plan.steps.size());
  const auto before = ancestors(dependencies);
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_TRUE(before[i][j] || !race(plan.steps[i], plan.steps[j]))
          << plan.steps[j].label << " and " << plan.steps[i].label;
    }
  }
}

TEST_P(Dependencies, LeaveProjectionsFreeAndNameNothingTwice) {
  const Plan plan = plan_of(GetParam()());
  const auto dependencies = step_dependencies(plan);
  const auto before = ancestors(dependencies);
  const std::size_t q = find_step(plan, "attn_q", 1), k = find_step(plan, "attn_k", 1),
                    v = find_step(plan, "attn_v", 1), gate = find_step(plan, "ffn_gate", 1),
                    up = find_step(plan, "ffn_up", 1);
  EXPECT_FALSE(before[k][q] || before[v][q] || before[v][k]);
  EXPECT_FALSE(before[up][gate]);
  for (const std::vector<int>& waits_for : dependencies) {
    for (int j : waits_for) {
      for (int other : waits_for)
        EXPECT_FALSE(before[static_cast<std::size_t>(other)][static_cast<std::size_t>(j)]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Dependencies,
                         ::testing::Values(&testing::tiny_llama, &testing::tiny_qwen2,
                                           &testing::tiny_qwen3, &testing::tiny_gemma3));

}  // namespace
}  // namespace lathe
