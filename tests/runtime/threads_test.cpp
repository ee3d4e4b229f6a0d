// Does at once what the headers promise that any number of threads may: for ThreadSanitizer, which
// the preset tsan runs this with, and for equal results.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "lathe/codegen/emit.h"
#include "runtime/device_impl.h"
#include "runtime/disk_cache.h"
#include "runtime/session_base.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/scratch_directory.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

constexpr int kThreads = 8;

template <typename Work>
void at_once(const Work& work) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([&work, i] { work(i); });
}

using Logits = std::vector<float>;

Logits decode(Session& session) {
  std::vector<std::int32_t> tokens(6);
  EXPECT_TRUE(session.feed(std::vector<std::int32_t>{3, 77, 5}));
  EXPECT_TRUE(session.generate(session.sampled().value(), tokens));
  const auto logits = session.logits().value();
  return {logits.begin(), logits.end()};
}

SessionOptions options_for(ExecutorKind kind) {
  SessionOptions options;
  options.executor = kind;
  options.plan.context = 16;
  options.plan.fusion = Fusion::full;
  options.threads = 2;
  options.disk_cache = false;
  return options;
}

TEST(Threads, EmitTheSamePtxWithCompilersOfTheirOwn) {
  KernelKey key{.type = KernelType::gemv, .format = Format::q8_0};
  key.k = 256;
  const Target target = parse_target("sm_90a").value();
  std::vector<std::string> texts(kThreads);
  at_once([&](int i) {
    const Compilers compilers;
    KernelKey of = key;
    for (int n = 64; n <= 64 * 20; n += 64) {
      of.n = n;
      const auto ptx = emit(of, target, Route::text, compilers);
      ASSERT_TRUE(ptx) << ptx.error().text();
      texts[std::size_t(i)] += ptx->text;
    }
  });
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
}

TEST(Threads, LoadTheSameKernelsOfOneDevice) {
  const ScratchDirectory scratch;
  FakeDriver fake;
  {
    DeviceOptions options;
    options.cache_directory = scratch.path();
    const auto device = DeviceImpl::open(options, fake.platform());
    ASSERT_TRUE(device) << device.error().text();
    at_once([&](int i) {
      KernelKey key{.type = KernelType::gemv, .format = Format::q8_0};
      key.k = 256;
      for (int n = 0; n < 12; ++n) {
        key.n = 64 * (1 + (n + i) % 12);
        EXPECT_TRUE((*device)->kernel(key));
        EXPECT_TRUE((*device)->notes().empty());
      }
    });
    EXPECT_EQ((*device)->counts().built, 12);
    EXPECT_EQ((*device)->counts().from_memory, (kThreads - 1) * 12);
  }
  EXPECT_EQ(fake.leaks(), "");
}

TEST(Threads, HaveSessionsOfOneDevice) {
  const auto file = make_model(1);
  FakeDriver fake({.memory = std::size_t{256} << 20});
  {
    DeviceOptions shared;
    shared.disk_cache = false;
    SessionOptions options = options_for(ExecutorKind::graph);
    options.kernels = DeviceImpl::open(shared, fake.platform()).value();
    const Logits expected = decode(**open_session(file, options, fake.platform()));
    at_once([&](int i) {
      SessionOptions own = options;
      if (i % 2) own.executor = ExecutorKind::eager;
      const auto session = open_session(file, own, fake.platform());
      ASSERT_TRUE(session) << session.error().text();
      EXPECT_EQ(decode(**session), expected);
    });
  }
  EXPECT_EQ(fake.violations(), std::vector<std::string>{});
  EXPECT_EQ(fake.leaks(), "");
}

TEST(Threads, HaveSessionsOnTheCpu) {
  const auto file = make_model(1);
  const Logits expected = decode(**Session::open(file, options_for(ExecutorKind::cpu)));
  at_once([&](int) {
    EXPECT_EQ(decode(**Session::open(file, options_for(ExecutorKind::cpu))), expected);
  });
}

TEST(Threads, ReadWriteAndTrimOneCache) {
  const ScratchDirectory scratch;
  const auto cache = DiskCache::open(scratch.path(), {.cap_bytes = 64 << 10});
  ASSERT_TRUE(cache) << cache.error().text();
  const auto payload_of = [](int key) {
    return std::vector<std::byte>(std::size_t(500 + 100 * key), std::byte(key));
  };
  at_once([&](int i) {
    for (int round = 0; round < 60; ++round) {
      const int key = (round * 7 + i) % 40;
      const std::string name = "key " + std::to_string(key);
      if (const auto found = cache->find(name)) {
        EXPECT_EQ(*found, payload_of(key));
      } else {
        EXPECT_TRUE(cache->store(name, payload_of(key)));
      }
      if (round % 20 == i) cache->trim();
    }
  });
  EXPECT_EQ(cache->trouble(), "");
  EXPECT_GT(cache->counts().hits, 0);
  EXPECT_EQ(cache->counts().rejects, 0);
}

}  // namespace
}  // namespace lathe::testing
