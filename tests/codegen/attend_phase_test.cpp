// Owns the tests of fused attention as a phase of a larger kernel: any number of blocks, vectors
// handed over with tags, and the counters through several tokens.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <tuple>

#include "emulation/emulator.h"
#include "ops/attend.h"
#include "tests/codegen/kernel_cases.h"

namespace lathe::testing {
namespace {

constexpr int kWarps = 4;
constexpr dev::AttendNumbers kNumbers = {.heads = 8,
                                         .kv_heads = 4,
                                         .head_dim = 64,
                                         .rotary = 64,
                                         .halves = 1,
                                         .window = 0,
                                         .splits = 16,
                                         .epsilon = 1e-6f,
                                         .scale = 0.125f};

KernelCase phase_case(int position, bool matrix) {
  KernelCase c{*parse_key("attend.f16.h8.kvh4.d64.rot64.w4.s16.eps1e-6.scale125e-3.qknorm.halves")};
  c.key.matrix = matrix;
  c.position = position;
  c.capacity = position + 1;
  return c;
}

template <typename T>
T* as(Bytes& bytes) {
  return reinterpret_cast<T*>(bytes.data());
}

// Runs the phase on the arguments of a case, on a grid of `blocks`.
void run_phase(std::vector<Bytes>& a, bool matrix, const dev::Exchange& e, int blocks,
               std::uint64_t seed) {
  const dev::AttendOperands operands = {as<float>(a[0]), as<float>(a[1]),    as<float>(a[2]),
                                        as<float>(a[3]), as<dev::u8>(a[5]),  as<dev::u8>(a[6]),
                                        as<float>(a[7]), as<dev::u32>(a[8]), as<float>(a[9])};
  const int position = *as<std::int32_t>(a[4]);
  const int bytes =
      matrix
          ? dev::attend_matrix_bytes(kNumbers.heads, kNumbers.kv_heads, 64, kNumbers.splits, kWarps)
          : dev::attend_bytes(kNumbers.heads, kNumbers.kv_heads, 64, 2, kNumbers.splits, kWarps);
  const auto body = [&] {
    if (matrix)
      dev::attend_phase<dev::KvRowsF16, true>(e, operands, kNumbers, position, dev::block_x(),
                                              blocks, kWarps, dev::shared_memory());
    else
      dev::attend_phase<dev::KvRowsF16>(e, operands, kNumbers, position, dev::block_x(), blocks,
                                        kWarps, dev::shared_memory());
  };
  const Geometry geometry = {.grid_x = static_cast<unsigned>(blocks),
                             .threads = kWarps * 32,
                             .shared_bytes = static_cast<unsigned>(bytes)};
  const Result<void> ran = emulation::launch("attend_phase", geometry, body, seed);
  ASSERT_TRUE(ran) << ran.error().text();
}

float distance(Bytes& expected, Bytes& actual) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < expected.size() / 4; ++i) {
    const double e = as<float>(expected)[i], difference = as<float>(actual)[i] - e;
    error += difference * difference;
    norm += e * e;
  }
  return static_cast<float>(std::sqrt(error / norm));
}

class AttendPhase : public ::testing::TestWithParam<std::tuple<int, int, bool>> {};

TEST_P(AttendPhase, ServesAnyGrid) {
  const auto [blocks, position, matrix] = GetParam();
  const KernelCase c = phase_case(position, matrix);
  std::vector<Bytes> arguments = make_arguments(c, 11);
  std::vector<Bytes> expected = arguments;
  run_oracle(c, expected);
  run_phase(arguments, matrix, {0, 0, nullptr}, blocks, 5);
  EXPECT_TRUE(arguments[5] == expected[5]) << "keys";
  EXPECT_TRUE(arguments[6] == expected[6]) << "values";
  EXPECT_LT(distance(expected[9], arguments[9]), row(KernelType::attend).bound);
}

INSTANTIATE_TEST_SUITE_P(Grids, AttendPhase,
                         ::testing::Combine(::testing::Values(1, 3, 4, 9, 132),
                                            ::testing::Values(0, 40, 200, 700), ::testing::Bool()));

// A short context takes a block for each query head where there are so many, a block for each KV
// head where there are not; more blocks than that change nothing.
TEST(AttendPhase, SpreadsAShortContextOverQueryHeads) {
  const auto blocks = [](int position, int blocks) {
    return dev::attend_blocks<dev::KvRowsF16>(kNumbers, position, blocks);
  };
  EXPECT_EQ(blocks(200, 132), kNumbers.heads);
  EXPECT_EQ(blocks(200, kNumbers.heads), kNumbers.heads);
  EXPECT_EQ(blocks(200, kNumbers.heads - 1), kNumbers.kv_heads);
  EXPECT_EQ(blocks(200, 3), 3);
  const std::vector<Bytes> arguments = make_arguments(phase_case(200, false), 17);
  std::vector<Bytes> few = arguments, many = arguments;
  run_phase(few, false, {0, 0, nullptr}, kNumbers.heads, 1);
  run_phase(many, false, {0, 0, nullptr}, 132, 2);
  EXPECT_TRUE(few == many);
}

TEST(AttendPhase, HandsVectorsOverWithTags) {
  std::vector<Bytes> plain = make_arguments(phase_case(700, false), 7);
  for (const auto& [tag, matrix] : {std::pair(0u, false), {1u, false}, {0u, true}, {1u, true}}) {
    std::vector<Bytes> tagged = plain, untagged = plain;
    for (std::size_t i = 0; i < tagged[0].size() / 4; ++i)
      as<dev::u32>(tagged[0])[i] = (as<dev::u32>(tagged[0])[i] & ~1u) | tag;
    dev::u32 fault = 0;
    run_phase(tagged, matrix, {1, tag, &fault}, 132, 3);
    run_phase(untagged, matrix, {0, 0, nullptr}, 132, 4);
    EXPECT_EQ(fault, 0u);
    for (std::size_t i = 0; i < tagged[9].size() / 4; ++i)
      EXPECT_EQ(as<dev::u32>(tagged[9])[i], as<dev::u32>(untagged[9])[i] | tag);
  }
}

void expect_counters_serve(bool matrix) {
  std::vector<Bytes> arguments = make_arguments(phase_case(1400, matrix), 23);
  const Bytes first_counters = arguments[8];
  for (int position : {600, 1400, 100, 900, 1399}) {
    std::vector<Bytes> expected = make_arguments(phase_case(position, matrix), 23);
    expected[5].resize(arguments[5].size());
    expected[8] = arguments[8];
    std::vector<Bytes> actual = expected;
    run_oracle(phase_case(position, matrix), expected);
    run_phase(actual, matrix, {0, 0, nullptr}, 132, 9);
    EXPECT_TRUE(actual[8] == expected[8]);
    EXPECT_LT(distance(expected[9], actual[9]), row(KernelType::attend).bound);
    arguments[8] = actual[8];
  }
  EXPECT_FALSE(arguments[8] == first_counters);
}
TEST(AttendPhase, CountersServeTokenAfterToken) {
  expect_counters_serve(false);
  expect_counters_serve(true);
}

}  // namespace
}  // namespace lathe::testing
