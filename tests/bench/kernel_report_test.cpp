// Holds the tables of bench_kernels to their units, and comparisons to their verdicts.
#include "bench/kernels/report.h"

#include <gtest/gtest.h>

#include "bench/kernels/comparison.h"

namespace lathe::bench::kernels {
namespace {

Row example(std::string key, double us) {
  Row row;
  row.key = std::move(key);
  row.route = "llvm";
  row.uses = "llama-3.1-8b decode, qwen3-8b decode";
  row.seconds = {us * 1e-6, us * 1e-6, 3 * us * 1e-6};
  row.bytes = 40'000'000;
  row.operations = 80'000'000;
  row.registers = 64;
  row.spill_bytes = 8;
  row.static_shared_bytes = 1000;
  row.dynamic_shared_bytes = 500;
  row.emit_ms = 12.5;
  return row;
}

Report report(std::vector<Row> rows) {
  return {.device = "a GPU", .read_rate = 4e12, .cache_bytes = 50'000'000, .rows = std::move(rows)};
}

TEST(KernelReport, TheTableHasTheMedianAndWhatFollows) {
  Row product = example("matmul.q4_k", 20);
  product.multiplies = true;
  product.position = 4096;
  const std::string text = markdown(report({example("gemv.q4_k", 20), product}));
  EXPECT_TRUE(
      text.starts_with("a GPU; a plain read kernel reaches 4000.0 GB/s; L2 cache of 50.0 "
                       "MB\n\n| kernel "))
      << text;
  // 40 MB in 20 us are 2000 GB/s, half of the read rate; 80 M operations 4 TFLOP/s.
  EXPECT_NE(text.find("| gemv.q4_k           | llvm  | 20.00 | 40.000 | 2000.0 |      50.0 |"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("| matmul.q4_k @ d4096 | llvm  | 20.00 | 40.000 | 2000.0 |         - |"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("|     4.0 |   64 |      8 |       1.5 |    12.5 | llama-3.1-8b decode, "),
            std::string::npos)
      << text;
}

TEST(KernelReport, JsonReadsBack) {
  const Report before = report({example("gemv.q4_k", 20), example("glu.f32", 2)});
  const auto after = parse_report(json(before));
  ASSERT_TRUE(after) << after.error().text();
  EXPECT_EQ(after->device, "a GPU");
  EXPECT_EQ(after->read_rate, 4e12);
  ASSERT_EQ(after->rows.size(), 2u);
  EXPECT_EQ(after->rows[1].key, "glu.f32");
  EXPECT_NEAR(after->rows[1].median(), 2e-6, 1e-12);
  EXPECT_EQ(markdown(*after), markdown(before));
  EXPECT_EQ(csv(*after), csv(before));
}

TEST(KernelReport, CsvHasALineForEachKernel) {
  const std::string text = csv(report({example("gemv.q4_k", 20)}));
  EXPECT_TRUE(text.starts_with("key,route,uses,position,median_us,")) << text;
  EXPECT_NE(text.find("\ngemv.q4_k,llvm,\"llama-3.1-8b decode, qwen3-8b decode\",0,"),
            std::string::npos)
      << text;
  EXPECT_EQ(csv(report({})), "");
}

TEST(KernelReport, NonsenseIsRefused) {
  EXPECT_FALSE(parse_report("nonsense"));
  EXPECT_FALSE(parse_report("{}"));
  EXPECT_FALSE(parse_report("[]"));
  Row row = example("gemv.q4_k", 20);
  row.seconds = {};
  const auto refused = parse_report(json(report({row})));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "it has no time for gemv.q4_k");
  const auto missing = read_report("/no/report.json");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("'/no/report.json' cannot be read: No such file"),
            std::string::npos);
}

TEST(KernelComparison, TellsWhatIsSlower) {
  const Report before =
      report({example("a", 10), example("b", 10), example("c", 10), example("gone", 1)});
  const Report after =
      report({example("a", 10.4), example("b", 20), example("c", 5), example("new", 1)});
  const ReportComparison comparison = compare(before, after);
  ASSERT_EQ(comparison.pairs.size(), 3u);
  EXPECT_EQ(comparison.only_before, 1);
  EXPECT_EQ(comparison.only_after, 1);
  EXPECT_EQ(comparison.slower(0.05), 1);
  EXPECT_EQ(comparison.slower(0.03), 2);
  EXPECT_EQ(comparison.slower(1.1), 0);
  const std::string text = comparison.markdown(0.05);
  EXPECT_NE(text.find("| b      | llvm  |     10.00 |    20.00 | 2.000 | slower |"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("0.500 | faster"), std::string::npos) << text;
  EXPECT_NE(text.find("3 kernels, 1 slower by more than 5 %; geometric mean of the ratios 1.013; 1 "
                      "only before, 1 only after"),
            std::string::npos)
      << text;
}

TEST(KernelComparison, RoutesAndPositionsAreKernelsOfTheirOwn) {
  Row other_route = example("a", 5), other_position = example("a", 7);
  other_route.route = "nvrtc";
  other_position.position = 100;
  const ReportComparison comparison =
      compare(report({example("a", 10), other_position}), report({other_route, other_position}));
  ASSERT_EQ(comparison.pairs.size(), 1u);
  EXPECT_EQ(comparison.pairs[0].kernel, "a @ d100");
  EXPECT_DOUBLE_EQ(comparison.pairs[0].ratio(), 1);
}

}  // namespace
}  // namespace lathe::bench::kernels
