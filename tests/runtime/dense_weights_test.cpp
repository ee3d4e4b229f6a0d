// Holds the cache of dense weights to its limits, its order of use and the keys of another system.
#include "lathe/runtime/dense_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <string_view>
#include <thread>

namespace lathe::testing {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Of one row of one value.
DenseWeightKey key_of(float value) {
  const Result<DenseWeightKey> key =
      dense_weight_key(std::as_bytes(std::span(&value, 1)), Format::f32, 1, 1);
  EXPECT_TRUE(key);
  return *key;
}
Result<void> put(DenseWeightCache& cache, float value) {
  return cache.put(key_of(value), std::span(&value, 1));
}

// FNV-1a of "", "a" and "foobar" are 0xcbf29ce484222325, 0xaf63dc4c8601ec8c and 0x85944171f73967e8;
// then come the two sizes.
TEST(WeightFingerprint, IsFnv1aOfBytesAndSizes) {
  const auto after = [](std::uint64_t hash, std::uint64_t n_in, std::uint64_t n_out) {
    constexpr std::uint64_t kPrime = 0x100000001b3;
    return ((hash ^ n_in) * kPrime ^ n_out) * kPrime;
  };
  EXPECT_EQ(weight_fingerprint({}, 0, 0), after(0xcbf29ce484222325, 0, 0));
  EXPECT_EQ(weight_fingerprint(bytes_of("a"), 4096, 14336), after(0xaf63dc4c8601ec8c, 4096, 14336));
  EXPECT_EQ(weight_fingerprint(bytes_of("foobar"), 3, 2), after(0x85944171f73967e8, 3, 2));
  EXPECT_NE(weight_fingerprint(bytes_of("foobar"), 2, 3), after(0x85944171f73967e8, 3, 2));
  // Sizes of 64 bits.
  EXPECT_EQ(weight_fingerprint(bytes_of("a"), ~0ull, 1ull << 40),
            after(0xaf63dc4c8601ec8c, ~0ull, 1ull << 40));
}

TEST(DenseWeightKeys, TellBytesTypeAndShapeApart) {
  const std::array<float, 64> numbers = {1, 2, 3};
  const auto raw = std::as_bytes(std::span(numbers));
  const auto key = [&](Format format, int n_in, int n_out, std::size_t bytes) {
    const auto made = dense_weight_key(raw.first(bytes), format, n_in, n_out);
    EXPECT_TRUE(made) << made.error().text();
    return made ? *made : DenseWeightKey{};
  };
  const DenseWeightKey first = key(Format::f32, 8, 8, 256);
  EXPECT_EQ(first, key(Format::f32, 8, 8, 256));
  EXPECT_NE(first, key(Format::f32, 4, 16, 256));
  EXPECT_NE(first, key(Format::f16, 16, 8, 256));
  EXPECT_NE(key(Format::f16, 16, 8, 256), key(Format::bf16, 16, 8, 256));
}

TEST(DenseWeightKeys, RefuseWhatIsNoMatrixByItsSize) {
  const std::array<std::byte, 340> raw = {};
  const auto refusal = [&](std::size_t bytes, Format format, int n_in, int n_out) {
    const auto key = dense_weight_key(std::span(raw).first(bytes), format, n_in, n_out);
    EXPECT_FALSE(key);
    return key ? std::string() : key.error().message;
  };
  EXPECT_NE(refusal(16, Format::f32, 0, 4).find("has none"), std::string::npos);
  EXPECT_NE(refusal(16, Format::f32, 4, -1).find("has none"), std::string::npos);
  EXPECT_NE(refusal(34, Format::q8_0, 33, 1).find("whole blocks of q8_0"), std::string::npos);
  EXPECT_NE(refusal(339, Format::q8_0, 32, 10).find("are 340 bytes, not 339"), std::string::npos);
  EXPECT_NE(refusal(16, Format::f32, 1 << 14, 3073).find("more than 50331648"), std::string::npos);
}

TEST(HugePages, AreAlignedZeroedAndCopiedOnDemand) {
  auto made = HugePageF32::make(1000);
  ASSERT_TRUE(made);
  HugePageF32 first = std::move(*made);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first.values().data()) % kHugePageBytes, 0u);
  ASSERT_EQ(first.values().size(), 1000u);
  for (const float value : first.values()) EXPECT_EQ(value, 0.0f);
  first.values()[999] = 7;
  const auto second = std::as_const(first).copy();
  ASSERT_TRUE(second);
  first.values()[999] = 8;
  EXPECT_EQ(second->values()[999], 7.0f);
  EXPECT_NE(second->values().data(), first.values().data());
}

// A buffer that ends within a huge page has all of that page, and one that fills its pages no more.
TEST(HugePages, HaveEveryFloatUpToTheLast) {
  constexpr std::size_t kFloats = kHugePageBytes / sizeof(float);
  for (const std::size_t count : {std::size_t{1}, kFloats - 1, kFloats, kFloats + 1,
                                  3 * kFloats - 5, 3 * kFloats, 3 * kFloats + 1000}) {
    SCOPED_TRACE(count);
    auto made = HugePageF32::make(count);
    ASSERT_TRUE(made);
    const std::span<float> values = made->values();
    ASSERT_EQ(values.size(), count);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(values.data()) % kHugePageBytes, 0u);
    EXPECT_TRUE(std::ranges::all_of(values, [](float value) { return value == 0; }));
    std::iota(values.begin(), values.end(), 1.0f);
    const auto copy = std::as_const(*made).copy();
    ASSERT_TRUE(copy);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(copy->values().data()) % kHugePageBytes, 0u);
    EXPECT_TRUE(std::ranges::equal(copy->values(), values));
    EXPECT_EQ(copy->values().back(), float(count));
  }
}

// In memory that was another's too, which the system did not hand out zeroed: what is freed keeps
// the allocator from asking the system for less than that.
TEST(HugePages, BeginAsZerosWhereverTheyAre) {
  constexpr std::size_t kFloats = kHugePageBytes / sizeof(float);
  for (const std::size_t count : {4 * kFloats, kFloats + 1000, kFloats + 1000, kFloats + 1000}) {
    auto made = HugePageF32::make(count);
    ASSERT_TRUE(made);
    EXPECT_TRUE(std::ranges::all_of(made->values(), [](float value) { return value == 0; }));
    std::ranges::fill(made->values(), 7.0f);
  }
}

TEST(HugePages, OfNoFloatsHaveNoMemory) {
  const auto none = HugePageF32::make(0);
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->values().empty());
  EXPECT_EQ(none->values().data(), nullptr);
  const auto copy = none->copy();
  ASSERT_TRUE(copy);
  EXPECT_TRUE(copy->values().empty());
}

TEST(DenseWeightCache, DropsWhatWasNotUsedForLongest) {
  DenseWeightCache cache;
  for (int i = 0; i < int(kMostDenseWeights); ++i) ASSERT_TRUE(put(cache, float(i)));
  EXPECT_EQ(cache.size(), 24u);
  ASSERT_TRUE(cache.find(key_of(0)));  // a use; contains() is none
  EXPECT_TRUE(cache.contains(key_of(1)));
  ASSERT_TRUE(put(cache, 100));
  EXPECT_EQ(cache.size(), 24u);
  EXPECT_TRUE(cache.contains(key_of(0)));
  EXPECT_FALSE(cache.contains(key_of(1)));
  // One that is there takes nobody's place.
  ASSERT_TRUE(put(cache, 2));
  EXPECT_TRUE(cache.contains(key_of(3)));
  ASSERT_TRUE(put(cache, 101));
  EXPECT_TRUE(cache.contains(key_of(2)));
  EXPECT_FALSE(cache.contains(key_of(3)));
  cache.clear();
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_FALSE(cache.find(key_of(0)));
}

TEST(DenseWeightCache, TellsWhatItKeepsAndDrops) {
  std::vector<std::string> lines;
  DenseWeightCache cache([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  for (int i = 0; i <= int(kMostDenseWeights); ++i) ASSERT_TRUE(put(cache, float(i)));
  EXPECT_TRUE(cache.find(key_of(1)));  // a use makes no line
  ASSERT_TRUE(put(cache, 1));          // in its own place
  ASSERT_EQ(lines.size(), kMostDenseWeights + 3);
  const auto begins = [&](std::size_t at, const std::string& words) {
    EXPECT_EQ(lines[at].substr(0, words.size()), words);
  };
  const auto digest = [&](std::size_t at) {
    return std::stoull(lines[at].substr(lines[at].find("digest=") + 7), nullptr, 16);
  };
  begins(0, "lathe,1,dense,kept,format=f32,k=");
  begins(kMostDenseWeights, "lathe,1,dense,dropped,format=f32,k=");
  EXPECT_EQ(digest(kMostDenseWeights), key_of(0).digest);
  EXPECT_TRUE(lines[kMostDenseWeights].ends_with(",weights=24"));
  begins(kMostDenseWeights + 1, "lathe,1,dense,kept,");
  begins(kMostDenseWeights + 2, "lathe,1,dense,kept,");
}

TEST(DenseWeightCache, AWeightInUseOutlivesItsPlace) {
  DenseWeightCache cache;
  ASSERT_TRUE(put(cache, 5));
  const std::shared_ptr<const DenseWeight> held = cache.find(key_of(5));
  cache.clear();
  EXPECT_EQ(held->values.values()[0], 5.0f);
}

TEST(DenseWeightCache, FillsZeroedRowsOrKeepsNothing) {
  DenseWeightCache cache;
  const std::array<float, 6> numbers = {1, 2, 3, 4, 5, 6};
  const auto raw = std::as_bytes(std::span(numbers));
  const DenseWeightKey key = *dense_weight_key(raw, Format::f32, 3, 2);
  ASSERT_TRUE(cache.fill(key, [](std::span<float> values) {
    EXPECT_EQ(values.size(), 6u);
    EXPECT_EQ(std::accumulate(values.begin(), values.end(), 0.0f), 0.0f);
    values[4] = 9;
    return true;
  }));
  EXPECT_EQ(cache.find(key)->values.values()[4], 9.0f);
  cache.clear();
  const Result<void> refused = cache.fill(key, [](std::span<float>) { return false; });
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::cancelled);
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_EQ(cache.fill(key, nullptr).error().code, Code::invalid_argument);
  const Result<void> few = cache.put(key, std::span(numbers).first(5));
  ASSERT_FALSE(few);
  EXPECT_NE(few.error().message.find("is given 5"), std::string::npos);
  DenseWeightKey large = key;
  large.n_in = 1 << 14, large.n_out = 3073;
  EXPECT_FALSE(cache.fill(large, [](std::span<float>) { return true; }));
}

TEST(DenseWeightCache, ExpandsAnyFormatOnce) {
  std::vector<std::byte> raw(34 * 4);
  for (std::size_t block = 0; block < 4; ++block) {
    const std::uint16_t half = 0x3800;  // 0.5
    std::memcpy(raw.data() + 34 * block, &half, 2);
    for (std::size_t i = 0; i < 32; ++i) raw[34 * block + 2 + i] = std::byte(i);
  }
  DenseWeightCache cache;
  const DenseWeightKey key = *dense_weight_key(raw, Format::q8_0, 64, 2);
  const auto first = cache.expand(key, raw);
  ASSERT_TRUE(first) << first.error().text();
  EXPECT_EQ((*first)->values.values()[127], 15.5f);
  const auto second = cache.expand(key, {});  // it is there: the bytes are not asked for
  ASSERT_TRUE(second);
  EXPECT_EQ(first->get(), second->get());
  cache.clear();
  EXPECT_FALSE(cache.expand(key, std::span(raw).first(34)));
}

TEST(DenseWeightCache, ThreadsShareIt) {
  DenseWeightCache cache;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const auto value = float((i * 7 + t * 13) % 40);
        if (const auto weight = cache.find(key_of(value))) {
          EXPECT_EQ(weight->values.values()[0], value);
        } else {
          EXPECT_TRUE(put(cache, value));
        }
        if (i % 50 == 49 && t == 0) cache.clear();
      }
    });
  }
  threads.clear();
  EXPECT_LE(cache.size(), kMostDenseWeights);
}

}  // namespace
}  // namespace lathe::testing
