// Owns the tests of the emulator itself: what it must catch, and that orders differ by seed.
#include "emulation/emulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <vector>

#include "emulation/op_registry.h"
#include "isa/isa.h"

namespace lathe::emulation {
namespace {

constexpr Geometry kOneBlock = {.grid_x = 1, .threads = 128, .shared_bytes = 512};

TEST(Emulator, RunsEveryThreadOfTheGrid) {
  std::vector<int> hits(6 * 64);
  const Geometry geometry = {.grid_x = 3, .grid_y = 2, .threads = 64};
  const auto count = [&] {
    ++hits[static_cast<std::size_t>((dev::block_y() * 3 + dev::block_x()) * 64 +
                                    dev::thread_index())];
  };
  const auto ran = launch("count", geometry, count, 1);
  ASSERT_TRUE(ran) << ran.error().text();
  EXPECT_EQ(hits, std::vector<int>(hits.size(), 1));
}

TEST(Emulator, ShufflesExchangeLanes) {
  std::vector<unsigned> flipped(128), first(128);
  const auto body = [&] {
    const auto i = static_cast<std::size_t>(dev::thread_index());
    flipped[i] = dev::shuffle_xor(static_cast<dev::u32>(i), 5);
    first[i] = dev::shuffle(static_cast<dev::u32>(i), 3);
  };
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    ASSERT_TRUE(launch("shuffle", kOneBlock, body, seed));
    for (unsigned i = 0; i < 128; ++i) {
      EXPECT_EQ(flipped[i], i ^ 5u);
      EXPECT_EQ(first[i], (i & ~31u) + 3u);
    }
  }
}

TEST(Emulator, GathersWordsOfAllLanes) {
  bool same = true;
  const auto body = [&] {
    const auto i = static_cast<unsigned>(dev::thread_index()), warp = i / 32;
    for (unsigned round = 0; round < 3; ++round) {
      const unsigned mine[] = {i * 8 + round, ~i, i ^ round};
      const auto lanes = gather(mine, 3);
      for (unsigned lane = 0; lane < 32; ++lane) {
        const unsigned other = warp * 32 + lane;
        same = same && lanes[lane][0] == other * 8 + round && lanes[lane][1] == ~other &&
               lanes[lane][2] == (other ^ round);
      }
    }
  };
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto ran = launch("gather", kOneBlock, body, seed);
    ASSERT_TRUE(ran) << ran.error().text();
    EXPECT_TRUE(same) << "seed " << seed;
  }
}

TEST(Emulator, NamesTheKernelOfADivergentGather) {
  const auto body = [] {
    const unsigned mine = 0;
    if (dev::lane_index() != 9) gather(&mine, 1);
  };
  const auto result = launch("lone_gather", kOneBlock, body, 5);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("lone_gather: divergent"), std::string::npos);
}

// A thread that waits for a copy lets the one that is yet to start it go on.
TEST(Emulator, WaitsForCopiesOfOtherThreads) {
  std::vector<unsigned> from(128), out(128);
  for (unsigned i = 0; i < 128; ++i) from[i] = i * 3;
  const auto body = [&] {
    const int t = dev::thread_index();
    auto* barrier = reinterpret_cast<dev::u64*>(dev::shared_memory());
    auto* landed = reinterpret_cast<unsigned*>(dev::shared_memory() + 16);
    if (t == 0) dev::copy_barrier_init(barrier);
    dev::block_barrier();
    for (int part = 0; part < 4; ++part) {
      if (t == 37) dev::bulk_copy(landed, from.data() + 32 * part, 128, barrier);
      dev::copy_barrier_wait(barrier, static_cast<dev::u32>(part % 2));
      if (t / 32 == part) out[static_cast<std::size_t>(t)] = landed[t % 32];
      dev::block_barrier();
    }
  };
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::fill(out.begin(), out.end(), 0);
    const auto ran = launch("copies", kOneBlock, body, seed);
    ASSERT_TRUE(ran) << ran.error().text();
    EXPECT_EQ(out, from) << "seed " << seed;
  }
}

TEST(Emulator, NamesTheKernelThatWaitsForACopyNobodyStarts) {
  const auto body = [] {
    auto* barrier = reinterpret_cast<dev::u64*>(dev::shared_memory());
    if (dev::thread_index() == 0) dev::copy_barrier_init(barrier);
    dev::block_barrier();
    if (dev::thread_index() < 32) dev::copy_barrier_wait(barrier, 0);
  };
  const auto result = launch("no_copy", kOneBlock, body, 5);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("no_copy"), std::string::npos);
  EXPECT_NE(result.error().message.find("32 threads wait for memory"), std::string::npos)
      << result.error().message;
}

TEST(Emulator, NamesTheKernelWhoseLanesWaitTogetherForAValueNobodySends) {
  dev::u32 value = 0;
  const auto body = [&] {
    for (;;) {
      const bool missing = dev::load_relaxed(&value) == 0;
      if (dev::ballot(missing) == 0) break;
      dev::poll_pause();
      if (dev::ballot(false) != 0) break;
    }
  };
  const auto result = launch("no_value", kOneBlock, body, 5);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("no_value"), std::string::npos);
}

TEST(Emulator, ShufflesOfOthersAreNoReasonToGiveUpAWait) {
  dev::u32 value = 0;
  const auto body = [&] {
    if (dev::warp_index() > 0) {
      while (dev::load_relaxed(&value) == 0) dev::poll_pause();
      return;
    }
    for (int i = 0; i < 5000; ++i) dev::shuffle_xor(1u, 1);
    dev::store_relaxed(&value, 1u);
  };
  const auto result = launch("slow_value", kOneBlock, body, 5);
  ASSERT_TRUE(result) << result.error().text();
}

TEST(Emulator, SumsOverAWarp) {
  std::vector<float> sums(128);
  const auto body = [&] {
    sums[static_cast<std::size_t>(dev::thread_index())] =
        dev::warp_sum(static_cast<float>(dev::lane_index()));
  };
  ASSERT_TRUE(launch("sum", kOneBlock, body, 7));
  EXPECT_EQ(sums, std::vector<float>(128, 496.0f));
}

TEST(Emulator, BarrierOrdersSharedMemory) {
  std::vector<unsigned> out(128);
  const auto body = [&] {
    auto* shared = reinterpret_cast<unsigned*>(dev::shared_memory());
    const auto i = static_cast<unsigned>(dev::thread_index());
    shared[i] = i;
    dev::block_barrier();
    out[i] = shared[127 - i];
  };
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    ASSERT_TRUE(launch("reverse", kOneBlock, body, seed));
    for (unsigned i = 0; i < 128; ++i) EXPECT_EQ(out[i], 127 - i);
  }
}

TEST(Emulator, MissingBarrierReadsTheFill) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    bool saw_fill = false;
    const auto body = [&] {
      auto* shared = reinterpret_cast<unsigned*>(dev::shared_memory());
      const auto i = static_cast<unsigned>(dev::thread_index());
      shared[i] = i;
      if (shared[127 - i] == 0xffffffffu) saw_fill = true;
    };
    ASSERT_TRUE(launch("race", kOneBlock, body, seed));
    EXPECT_TRUE(saw_fill) << "seed " << seed;
  }
}

TEST(Emulator, SharedMemoryIsFreshInEveryBlock) {
  bool stale = false;
  const auto body = [&] {
    unsigned char* byte = dev::shared_memory() + dev::thread_index();
    stale = stale || *byte != 0xff;
    *byte = 0;
  };
  ASSERT_TRUE(launch("fresh", {.grid_x = 4, .threads = 32, .shared_bytes = 32}, body, 3));
  EXPECT_FALSE(stale);
}

TEST(Emulator, NamesTheKernelOfADivergentBlockBarrier) {
  const auto body = [] {
    if (dev::thread_index() < 64) dev::block_barrier();
  };
  const auto result = launch("half_barrier", kOneBlock, body, 5);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("half_barrier"), std::string::npos);
  EXPECT_NE(result.error().message.find("divergent barrier or shuffle"), std::string::npos);
  EXPECT_NE(result.error().message.find("64 at a block barrier"), std::string::npos);
  // The next launch is not disturbed.
  EXPECT_TRUE(launch(
      "after", kOneBlock, [] { dev::block_barrier(); }, 5));
}

TEST(Emulator, NamesTheKernelOfADivergentShuffle) {
  const auto body = [] {
    if (dev::lane_index() != 9) dev::shuffle(1u, 0);
  };
  const auto result = launch("lone_lane", kOneBlock, body, 5);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("lone_lane: divergent"), std::string::npos);
}

TEST(Emulator, ShuffleDoesNotMeetABarrier) {
  const auto body = [] {
    if (dev::lane_index() < 16)
      dev::shuffle(1u, 0);
    else
      dev::warp_barrier();
  };
  EXPECT_FALSE(launch("mixed", kOneBlock, body, 5));
}

TEST(Emulator, OrderComesFromTheSeed) {
  const auto order = [](std::uint64_t seed) {
    std::vector<int> order;
    EXPECT_TRUE(launch(
        "order", kOneBlock, [&] { order.push_back(dev::thread_index()); }, seed));
    return order;
  };
  std::set<std::vector<int>> orders;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    EXPECT_EQ(order(seed), order(seed));
    orders.insert(order(seed));
  }
  EXPECT_GT(orders.size(), 8u);
}

TEST(Emulator, RefusesPartialWarps) {
  EXPECT_FALSE(launch(
      "partial", {.threads = 33}, [] {}, 1));
}

TEST(Emulator, SixtyThousandThreadsTakeMilliseconds) {
  const auto body = [] {
    dev::block_barrier();
    dev::warp_sum(1.0f);
  };
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(launch("many", {.grid_x = 480, .threads = 128}, body, 1));
  const auto spent = std::chrono::steady_clock::now() - start;
  RecordProperty("milliseconds", static_cast<int>(spent / std::chrono::milliseconds(1)));
  EXPECT_LT(spent, std::chrono::seconds(2));  // some 20 ms; far more means a switch by system call
}

TEST(OpRegistry, KnowsEveryFamily) {
  for (const char* name : {"gemv_q4_k", "rms_norm", "attention_f16", "rope_halves", "argmax"})
    EXPECT_NE(find_host_op(name), nullptr) << name;
  EXPECT_EQ(find_host_op("gemv"), nullptr);
}

}  // namespace
}  // namespace lathe::emulation
