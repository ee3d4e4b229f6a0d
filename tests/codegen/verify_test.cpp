// Holds verify() to telling what is right from what is wrong, with launches that do one or the
// other.
#include "verification/verify.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "emulation/emulator.h"
#include "tests/codegen/kernel_cases.h"
#include "verification/comparison.h"

namespace lathe::testing {
namespace {

// By emulation, and then what `change` does to the arguments.
Verdict verdict_of(const KernelCase& c, const std::function<void(std::vector<Bytes>&)>& change) {
  const Result<Verdict> verdict = verify(c, 1, [&](const std::vector<Bytes>& arguments) {
    std::vector<Bytes> after = arguments;
    std::vector<void*> pointers;
    for (Bytes& bytes : after) pointers.push_back(bytes.data());
    const Result<void> ran = emulation::emulate(c.key, pointers, 1);
    EXPECT_TRUE(ran) << ran.error().text();
    change(after);
    return Result<std::vector<Bytes>>(after);
  });
  EXPECT_TRUE(verdict) << verdict.error().text();
  return verdict ? *verdict : Verdict{};
}

KernelCase gemv() {
  return case_at(*parse_key("gemv.q8_0.k256.n40.w4"), 0);
}

TEST(Verify, EveryTypeAgreesAtAnyPosition) {
  for (const char* text : {"gemv.q8_0.k256.n40.w4",
                           "glu.f32.n100.w4",
                           "embed.q8_0.k64.n9.w2.tiles",
                           "attention.f16.h4.kvh2.d64.w4.s3.scale125e-3",
                           "kv_append.f16.kvh2.d64.w2",
                           "attend.f16.h4.kvh2.d64.rot64.w4.s4.scale125e-3",
                           "top_k.f32.n300.w4.s2",
                           "sample.f32.w2.s3",
                           "append_tokens.f16.m5.h4.kvh2.d64.rot64.w4",
                           "append_tokens.f16.m3.h4.kvh2.d64.rot64.w4.batched",
                           "append_tokens.q8_0.m3.h4.kvh2.d64.rot64.w4.batched.paged",
                           "kv_append.f16.kvh2.d64.w2.paged",
                           "attention.f16.h4.kvh2.d64.w4.s3.scale125e-3.paged",
                           "attend_tokens.f16.m5.h4.kvh2.d64.w8.paged",
                           "attend_rows.f16.m3.h4.kvh2.d64.w4.s5.paged",
                           "attend_rows.f16.m3.h4.kvh2.d64.w4.s5",
                           "top_k.f32.n300.m3.w4.s2.batched",
                           "sample.f32.m3.w2.s3.batched",
                           "attend_tokens.f16.m5.h4.kvh2.d64.w8",
                           "norm_tokens.f32.k64.m5.w2.eps1e-5",
                           "matmul.q8_0.k64.n20.m5.w8",
                           "gemm_operand.f32.k70.n5.w2",
                           "gemm.f32.k70.n20.m5.w8",
                           "gemm_operand.fp8_e4m3.k70.n5.w2",
                           "gemm.fp8_e4m3.k70.n20.m5.w8",
                           "gemm.f64.k70.n20.m5.w8",
                           "gemv.f64.k71.n20.w2.res"}) {
    const Result<KernelKey> key = parse_key(text);
    ASSERT_TRUE(key) << key.error().text();
    ASSERT_TRUE(check_key(*key)) << check_key(*key).error().text();
    for (int position : {0, 77}) {
      const Verdict verdict = verdict_of(case_at(*key, position), [](std::vector<Bytes>&) {});
      EXPECT_EQ(verdict.problem, "") << text << " at " << position;
      EXPECT_LE(verdict.error, error_bound(*key)) << text;
    }
  }
}

// Sums in another order may be the greatest f16 or, a little more, infinity.
TEST(Verify, HalvesAtTheEndOfTheirRange) {
  const KernelCase c = case_at(*parse_key("matmul.q8_0.k64.n20.nb20.b_q8_0.m5.w8.gated"), 0);
  std::vector<Bytes> expected = make_arguments(c, 1);
  run_oracle(c, expected);
  const auto problem = [&](std::uint16_t should, std::uint16_t is) {
    std::vector<Bytes> wanted = expected, found = expected;
    const std::size_t y = expected.size() - 1;
    std::memcpy(wanted[y].data(), &should, 2);
    std::memcpy(found[y].data(), &is, 2);
    Comparison comparison(c);
    comparison.add(wanted, found);
    return comparison.problem();
  };
  ASSERT_EQ(row(c.key.type).params(c.key).back().element, Element::f16);
  EXPECT_EQ(problem(0x7bff, 0x7c00), "");
  EXPECT_EQ(problem(0xfc00, 0xfbff), "");
  EXPECT_NE(problem(0x7bff, 0xfc00), "");
  EXPECT_NE(problem(0x7800, 0x7c00), "");
  EXPECT_NE(problem(0x7c00, 0x7800), "");
}

TEST(Verify, CostIsOfAllPositionsThatAttentionSees) {
  const auto cost = [](const char* text, int position) {
    return cost_of(case_at(*parse_key(text), position));
  };
  // K and V of two heads of 64 f16 values are 512 bytes a position.
  EXPECT_EQ(cost("attention.f16.h4.kvh2.d64.w4.s3", 9).bytes_read, 10 * 512);
  EXPECT_EQ(cost("attention.f16.h4.kvh2.d64.win4.w4.s3", 9).bytes_read, 4 * 512);
  EXPECT_EQ(cost("attend.f16.h4.kvh2.d64.rot64.w4.s4", 9).operations, 10 * 4 * 4 * 64);
  // Three tokens behind nine: the first sees ten positions, the last twelve.
  EXPECT_EQ(cost("attend_tokens.f16.m3.h4.kvh2.d64.w8", 9).bytes_read, 12 * 512);
  EXPECT_EQ(cost("attend_tokens.f16.m3.h4.kvh2.d64.w8", 9).operations, (10 + 11 + 12) * 4 * 4 * 64);
  EXPECT_EQ(cost("attend_tokens.f16.m3.h4.kvh2.d64.win4.w8", 9).bytes_read, 6 * 512);
  // Each of three tokens sees ten positions of its own.
  EXPECT_EQ(cost("attend_rows.f16.m3.h4.kvh2.d64.w4.s5", 9).bytes_read, 3 * 10 * 512);
  EXPECT_EQ(cost("gemv.q8_0.k256.n40.w4", 9).bytes_read,
            row(KernelType::gemv).cost(*parse_key("gemv.q8_0.k256.n40.w4")).bytes_read);
}

TEST(Verify, AValueThatIsOffIsToldWithTheBound) {
  const Verdict verdict = verdict_of(gemv(), [](std::vector<Bytes>& after) {
    float value = 0;
    std::memcpy(&value, after.back().data() + 12, sizeof value);
    value = value * 1.01f + 1;
    std::memcpy(after.back().data() + 12, &value, sizeof value);
  });
  EXPECT_NE(verdict.problem.find("relative L2 error of the values"), std::string::npos)
      << verdict.problem;
  EXPECT_GT(verdict.error, row(KernelType::gemv).bound);
}

TEST(Verify, WhatIsNotWrittenIsTold) {
  const Verdict verdict = verdict_of(gemv(), [](std::vector<Bytes>& after) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(after.back().data(), &nan, sizeof nan);
  });
  EXPECT_NE(verdict.problem.find("values at 0: nan"), std::string::npos) << verdict.problem;
}

TEST(Verify, AnInputThatChangesIsTold) {
  const Verdict verdict =
      verdict_of(gemv(), [](std::vector<Bytes>& after) { after[1][5] ^= std::byte{1}; });
  EXPECT_EQ(verdict.problem, "the kernel changed its input x");
}

TEST(Verify, ALaunchThatFailsIsAnError) {
  const Result<Verdict> verdict =
      verify(gemv(), 1, [](const std::vector<Bytes>&) -> Result<std::vector<Bytes>> {
        return Error{Code::driver, "no luck", {}};
      });
  ASSERT_FALSE(verdict);
  EXPECT_EQ(verdict.error().message, "no luck");
}

}  // namespace
}  // namespace lathe::testing
