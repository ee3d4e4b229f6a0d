// Owns the proof of every kernel on the CPU: the device code, run by the emulator on arguments
// between guard pages, against the double-precision oracle.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>

#include "emulation/emulator.h"
#include "tests/codegen/kernel_runs.h"
#include "tests/support/seed.h"

namespace lathe::testing {
namespace {

// Runs the kernel once. Returns the arguments after it, or fails the test.
std::vector<Bytes> emulated(const KernelCase& c, const std::vector<Bytes>& before,
                            Placement placement, std::uint64_t seed) {
  Result<std::vector<Bytes>> after = emulated_run(c, before, placement, seed);
  EXPECT_TRUE(after) << after.error().text();
  return after ? std::move(*after) : before;
}

// Returns the relative error.
double run_case(const KernelCase& c, std::uint64_t seed) {
  Random random(seed);
  Comparison comparison(c);
  for (int draw = 0; draw < draws(c); ++draw) {
    const std::vector<Bytes> arguments = make_arguments(c, random.bits());
    std::vector<Bytes> expected = arguments;
    run_oracle(c, expected);
    const std::vector<Bytes> given = device_arguments(c, arguments);
    const std::vector<Bytes> first = emulated(c, given, Placement::end, random.bits());
    const std::vector<Bytes> second = emulated(c, given, Placement::start, random.bits());
    EXPECT_TRUE(first == second) << "the result depends on the order of the threads";
    comparison.add(expected, first);
  }
  EXPECT_EQ(comparison.problem(), "");
  return comparison.worst_error();
}

class EmulationTest : public ::testing::TestWithParam<Family> {};

// LATHE_EMULATED_PARTS, which builds with sanitizers have, says that one of so many parts of the
// cases is enough: the seed chooses it, so that each has its turn.
TEST_P(EmulationTest, MatchesTheOracle) {
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const std::vector<KernelCase> all = kernel_cases(GetParam());
  std::vector<KernelCase> cases;
  for (std::size_t i = seed % LATHE_EMULATED_PARTS; i < all.size(); i += LATHE_EMULATED_PARTS)
    cases.push_back(all[i]);
  ASSERT_FALSE(cases.empty());
  double worst = 0;
  for (const KernelCase& c : cases) {
    SCOPED_TRACE(c.text());
    const Result<void> valid = check_key(c.key);
    ASSERT_TRUE(valid) << valid.error().text();
    worst = std::max(worst, run_case(c, seed));
    if (HasFailure()) return;
  }
  const double bound = error_bound(cases.front().key);
  if (bound > 0) RecordProperty("worst_error_over_bound", std::to_string(worst / bound));
  RecordProperty("cases", static_cast<int>(cases.size()));
}

// The last 16 rows of a table of more than 4 GiB; the rest of it is address space without memory.
TEST(EmulationOfTiles, OffsetsHaveSixtyFourBits) {
  const KernelKey key = *parse_key("embed.q8_0.k8192.n600000.w4.tiles");
  KernelCase few{.key = key, .token = 15};
  few.key.n = 16;
  std::vector<Bytes> expected = make_arguments(few, 1);
  std::vector<Bytes> given = device_arguments(few, expected);
  run_oracle(few, expected);
  const auto bytes = static_cast<std::size_t>(row(key.type).params(key)[0].bytes);
  ASSERT_GT(bytes, std::size_t{1} << 32);
  void* table = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (table == MAP_FAILED) GTEST_SKIP() << "no address space for " << bytes << " bytes";
  std::copy(given[0].begin(), given[0].end(),
            static_cast<std::byte*>(table) + (bytes - given[0].size()));
  std::int32_t token = key.n - 1;
  void* const pointers[] = {table, &token, given[2].data()};
  const Result<void> ran = emulation::emulate(key, pointers, 1);
  munmap(table, bytes);
  ASSERT_TRUE(ran) << ran.error().text();
  EXPECT_TRUE(given[2] == expected[2]);
}

INSTANTIATE_TEST_SUITE_P(Kernels, EmulationTest, ::testing::ValuesIn(families()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace lathe::testing
