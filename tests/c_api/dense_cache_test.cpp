// Holds the cache of dense weights in the C interface to its contract. It needs no device.
#include <array>
#include <cmath>
#include <cstring>

#include "tests/c_api/fixture.h"

namespace lathe::testing {
namespace {

using CacheHandle = std::unique_ptr<lathe_dense_cache, Close<lathe_dense_cache_close>>;

constexpr std::array<float, 6> kWeight = {1, -2, 3, 4, 5, 0.5f};

lathe_dense_key key_of_weight() {
  lathe_dense_key key = {};
  EXPECT_EQ(lathe_dense_key_make(kWeight.data(), sizeof kWeight, "f32", 3, 2, &key), LATHE_OK);
  return key;
}
CacheHandle open_cache() {
  lathe_dense_cache* cache = nullptr;
  EXPECT_EQ(lathe_dense_cache_open(&cache), LATHE_OK) << last_message();
  return CacheHandle(cache);
}
std::int32_t size_of(const CacheHandle& cache) {
  std::int32_t size = -1;
  EXPECT_EQ(lathe_dense_cache_get_size(cache.get(), &size), LATHE_OK);
  return size;
}

TEST(DenseCacheFunctions, KeepFloatsAndGiveThemBack) {
  const CacheHandle cache = open_cache();
  const lathe_dense_key key = key_of_weight();
  std::array<float, 6> read;
  read.fill(NAN);
  EXPECT_REFUSED(lathe_dense_cache_read(cache.get(), &key, read.data(), 6), LATHE_NOT_FOUND,
                 "2 rows of 3 values is not in the cache");
  ASSERT_EQ(lathe_dense_cache_put(cache.get(), &key, kWeight.data(), 6), LATHE_OK);
  std::int32_t contained = 0;
  ASSERT_EQ(lathe_dense_cache_contains(cache.get(), &key, &contained), LATHE_OK);
  EXPECT_EQ(contained, 1);
  ASSERT_EQ(lathe_dense_cache_read(cache.get(), &key, read.data(), 6), LATHE_OK);
  EXPECT_EQ(read, kWeight);
  EXPECT_EQ(size_of(cache), 1);
  ASSERT_EQ(lathe_dense_cache_clear(cache.get()), LATHE_OK);
  EXPECT_EQ(size_of(cache), 0);
  ASSERT_EQ(lathe_dense_cache_contains(cache.get(), &key, &contained), LATHE_OK);
  EXPECT_EQ(contained, 0);
}

TEST(DenseCacheFunctions, ExpandBlocksOfAFormat) {
  std::array<std::byte, 34> block = {};
  const std::uint16_t half = 0x3800;  // 0.5
  std::memcpy(block.data(), &half, 2);
  for (std::size_t i = 0; i < 32; ++i) block[2 + i] = std::byte(i);
  lathe_dense_key key = {};
  ASSERT_EQ(lathe_dense_key_make(block.data(), 34, "q8_0", 32, 1, &key), LATHE_OK);
  const CacheHandle cache = open_cache();
  ASSERT_EQ(lathe_dense_cache_expand(cache.get(), &key, block.data()), LATHE_OK);
  std::array<float, 32> read;
  ASSERT_EQ(lathe_dense_cache_read(cache.get(), &key, read.data(), 32), LATHE_OK);
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(read[i], 0.5f * float(i));
}

TEST(DenseCacheFunctions, RefuseWhatIsMissingOrOfAnotherSize) {
  const CacheHandle cache = open_cache();
  lathe_dense_key key = key_of_weight();
  std::array<float, 6> read = {};
  std::int32_t word = 0;
  EXPECT_REFUSED(lathe_dense_cache_open(nullptr), LATHE_INVALID_ARGUMENT, "cache is a null");
  EXPECT_REFUSED(lathe_dense_cache_put(nullptr, &key, kWeight.data(), 6), LATHE_INVALID_ARGUMENT,
                 "dense cache is a null");
  EXPECT_REFUSED(lathe_dense_cache_put(cache.get(), nullptr, kWeight.data(), 6),
                 LATHE_INVALID_ARGUMENT, "key is a null");
  EXPECT_REFUSED(lathe_dense_cache_put(cache.get(), &key, kWeight.data(), 5),
                 LATHE_INVALID_ARGUMENT, "is given 5");
  EXPECT_REFUSED(lathe_dense_cache_put(cache.get(), &key, kWeight.data(), -1),
                 LATHE_INVALID_ARGUMENT, "count of values is -1");
  EXPECT_REFUSED(lathe_dense_cache_put(cache.get(), &key, nullptr, 6), LATHE_INVALID_ARGUMENT,
                 "values is a null");
  EXPECT_REFUSED(lathe_dense_cache_expand(cache.get(), &key, nullptr), LATHE_INVALID_ARGUMENT,
                 "raw is a null");
  ASSERT_EQ(lathe_dense_cache_put(cache.get(), &key, kWeight.data(), 6), LATHE_OK);
  EXPECT_REFUSED(lathe_dense_cache_read(cache.get(), &key, read.data(), 5), LATHE_INVALID_ARGUMENT,
                 "room for 5");
  EXPECT_REFUSED(lathe_dense_cache_contains(cache.get(), &key, nullptr), LATHE_INVALID_ARGUMENT,
                 "contained is a null");
  key.format = -1;
  EXPECT_REFUSED(lathe_dense_cache_contains(cache.get(), &key, &word), LATHE_INVALID_ARGUMENT,
                 "no format number -1");
  key = {};
  key.n_in = -1;
  EXPECT_REFUSED(lathe_dense_cache_put(cache.get(), &key, nullptr, 0), LATHE_INVALID_ARGUMENT,
                 "has none");
  const Key other = key_of("gemv.q8_0.k64.n8.w4");
  auto* const foreign = reinterpret_cast<lathe_dense_cache*>(other.get());
  EXPECT_REFUSED(lathe_dense_cache_get_size(foreign, &word), LATHE_INVALID_ARGUMENT,
                 "closed, or no handle");
}

}  // namespace
}  // namespace lathe::testing
