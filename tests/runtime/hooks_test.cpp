// Holds sessions to what an engine around them sets: where memory comes from, and when to give up.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "runtime/device_impl.h"
#include "runtime/session_base.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

class HooksTest : public ::testing::TestWithParam<ExecutorKind> {
 protected:
  void TearDown() override {
    EXPECT_EQ(fake_.leaks(), "");
    EXPECT_EQ(fake_.violations(), std::vector<std::string>{});
  }
  SessionOptions options_for() const {
    SessionOptions options;
    options.executor = GetParam();
    options.plan.context = 32;
    options.disk_cache = false;
    return options;
  }

  FakeDriver fake_;
  std::shared_ptr<const GgufFile> file_ = make_model();
};

INSTANTIATE_TEST_SUITE_P(All, HooksTest,
                         ::testing::Values(ExecutorKind::eager, ExecutorKind::graph,
                                           ExecutorKind::mega),
                         [](const auto& info) { return executor_name(info.param); });

// An engine's allocator, which does not wait for any stream.
class Pool {
 public:
  explicit Pool(FakeDriver& fake) : fake_(fake) {}
  MemoryHooks hooks() {
    return {.user = this,
            .allocate_device = [](void* pool,
                                  std::size_t bytes) { return of(pool).take(bytes, false); },
            .free_device = [](void* pool, std::uint64_t address) { of(pool).give(address); },
            .allocate_pinned =
                [](void* pool, std::size_t bytes) {
                  return reinterpret_cast<void*>(of(pool).take(bytes, true));
                },
            .free_pinned =
                [](void* pool, void* address) {
                  of(pool).give(reinterpret_cast<std::uint64_t>(address));
                }};
  }
  std::size_t taken() const { return taken_.size(); }

  std::size_t refuse_from = 1000;  // the allocation that gets none, and all after it
  std::size_t shift = 0;           // added to addresses: misaligns them
  std::size_t allocations = 0, frees = 0;

 private:
  static Pool& of(void* pool) { return *static_cast<Pool*>(pool); }
  std::uint64_t take(std::size_t bytes, bool pinned) {
    if (allocations++ >= refuse_from) return 0;
    void* memory = std::aligned_alloc(256, (bytes + shift + 255) / 256 * 256);
    const std::uint64_t address = reinterpret_cast<std::uint64_t>(memory) + shift;
    taken_.insert(address);
    fake_.lend(address, bytes, pinned);
    return address;
  }
  void give(std::uint64_t address) {
    ++frees;
    EXPECT_EQ(taken_.erase(address), 1u);
    fake_.take_back(address);
    std::free(reinterpret_cast<void*>(address - shift));
  }

  FakeDriver& fake_;
  std::set<std::uint64_t> taken_;
};

TEST_P(HooksTest, MemoryMayBeTheCallers) {
  Pool pool(fake_);
  SessionOptions options = options_for();
  DeviceOptions of_device;
  of_device.disk_cache = false;
  of_device.memory = pool.hooks();
  options.kernels = DeviceImpl::open(of_device, fake_.platform()).value();
  const int driver_allocations = fake_.calls("cuMemAlloc") + fake_.calls("cuMemAllocHost");
  {
    const auto session = open_session(file_, options, fake_.platform());
    ASSERT_TRUE(session) << session.error().text();
    // Weights, KV cache, scratch; logits, control block, sampled tokens.
    EXPECT_GE(pool.taken(), 6u);
    ASSERT_TRUE(session.value()->step(1));
    ASSERT_TRUE(session.value()->logits());
    EXPECT_EQ(fake_.calls("cuMemAlloc") + fake_.calls("cuMemAllocHost"), driver_allocations);
  }
  EXPECT_EQ(pool.taken(), 0u);
  EXPECT_EQ(pool.frees, pool.allocations);

  // Each allocation in turn gets none: a sentence, and nothing kept.
  const std::size_t all = pool.allocations;
  for (pool.refuse_from = 0; pool.refuse_from < all; ++pool.refuse_from) {
    pool.allocations = 0;
    const auto session = open_session(file_, options, fake_.platform());
    ASSERT_FALSE(session);
    EXPECT_EQ(session.error().code, Code::out_of_memory);
    EXPECT_NE(session.error().message.find("the caller's allocator gave none"), std::string::npos)
        << session.error().text();
    EXPECT_EQ(pool.taken(), 0u);
  }
  pool.refuse_from = 1000;
  pool.shift = 16;
  const auto session = open_session(file_, options, fake_.platform());
  ASSERT_FALSE(session);
  EXPECT_NE(session.error().message.find("not aligned to 256 bytes"), std::string::npos);
  EXPECT_EQ(pool.taken(), 0u);
}

TEST(MemoryHooksOfADevice, ComeInPairs) {
  FakeDriver fake;
  Pool pool(fake);
  DeviceOptions options;
  options.disk_cache = false;
  options.memory = pool.hooks();
  options.memory.free_device = nullptr;
  const auto device = DeviceImpl::open(options, fake.platform());
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, Code::invalid_argument);
  EXPECT_EQ(fake.leaks(), "");
}

TEST_P(HooksTest, OpeningCanBeCancelled) {
  int asked = 0, all = 0;
  SessionOptions options = options_for();
  options.cancelled = [&] { return ++all, false; };
  ASSERT_TRUE(open_session(file_, options, fake_.platform()));
  EXPECT_GT(all, 10);  // kernels, then weights
  for (int yes = 1; yes <= all; yes += 3) {
    asked = 0;
    options.cancelled = [&] { return ++asked >= yes; };
    const auto session = open_session(file_, options, fake_.platform());
    // Kernels that end together are asked about once.
    if (session) continue;
    EXPECT_EQ(session.error().code, Code::cancelled) << session.error().text();
    EXPECT_EQ(asked, yes);
    EXPECT_EQ(fake_.leaks(), "");
  }
}

}  // namespace
}  // namespace lathe::testing
