// Owns the proof of every PTX template on the CPU: its text, run by the PTX machine on arguments
// between guard pages, against the double-precision oracle, and bit for bit against the device
// functions where the two take their sums in one order.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/codegen/kernel_runs.h"
#include "tests/codegen/ptx_machine.h"
#include "verification/random.h"

namespace lathe::testing {
namespace {

void run_case(const KernelCase& c, std::uint64_t seed) {
  const Compilers compilers;
  const Result<Ptx> ptx = emit(c.key, *parse_target("sm_90a"), Route::text, compilers);
  ASSERT_TRUE(ptx) << ptx.error().text();
  const auto run = [&](const std::vector<Bytes>& before, Placement placement, WarpOrder order) {
    return host_run(c, before, placement, [&](std::span<void* const> pointers) {
      return run_ptx(*ptx, pointers, order);
    });
  };
  verification::Random random(seed);
  Comparison comparison(c);
  for (int draw = 0; draw < draws(c); ++draw) {
    const std::vector<Bytes> given = make_arguments(c, random.bits());
    std::vector<Bytes> expected = given;
    run_oracle(c, expected);
    const auto first = run(given, Placement::end, WarpOrder::rising);
    ASSERT_TRUE(first) << first.error().text();
    const auto second = run(given, Placement::start, WarpOrder::falling);
    ASSERT_TRUE(second) << second.error().text();
    EXPECT_TRUE(*first == *second) << "the result depends on the order of the warps";
    comparison.add(expected, *first);
    if (!template_sums_in_order(c.key)) continue;
    const auto emulated = emulated_run(c, given, Placement::end, seed);
    ASSERT_TRUE(emulated) << emulated.error().text();
    EXPECT_TRUE(*first == *emulated) << "bits differ from the device function's";
  }
  EXPECT_EQ(comparison.problem(), "");
}

std::vector<KernelCase> covered_cases(const Family& family) {
  std::vector<KernelCase> cases = kernel_cases(family);
  std::erase_if(cases, [](const KernelCase& c) { return !route_covers(c.key, Route::text); });
  return cases;
}

std::vector<Family> covered_families() {
  std::vector<Family> all = families();
  std::erase_if(all, [](const Family& family) {
    return std::ranges::none_of(kernel_cases(family), [](const KernelCase& c) {
      return bool(route_covers(c.key, Route::text));
    });
  });
  return all;
}

class TemplateKernelsTest : public ::testing::TestWithParam<Family> {};

// One of so many parts of the cases is enough: the seed chooses it, so that each has its turn. The
// machine takes a second for a case of attention.
std::size_t parts_of(KernelType type) {
  return std::size_t{LATHE_EMULATED_PARTS} * (type == KernelType::attention ? 16 : 4);
}

TEST_P(TemplateKernelsTest, MatchTheOracle) {
  const std::uint64_t seed = verification::fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const std::vector<KernelCase> cases = covered_cases(GetParam());
  const std::size_t parts = parts_of(GetParam().type);
  for (std::size_t i = seed % parts; i < cases.size(); i += parts) {
    SCOPED_TRACE(cases[i].text());
    run_case(cases[i], seed);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Templates, TemplateKernelsTest, ::testing::ValuesIn(covered_families()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace lathe::testing
