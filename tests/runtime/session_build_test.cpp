// Owns the tests of when a session builds its kernels, and of what it tells of the wait.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/session_base.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

enum class Held { program, prompts };

// Says when it begins to make what is held, and goes on when `go` is set or ten seconds have
// passed.
class HeldToolchain final : public Toolchain {
 public:
  HeldToolchain(Held held, std::promise<void>& begun, std::shared_future<void> go,
                std::atomic<bool>& in_time)
      : held_(held), begun_(begun), go_(std::move(go)), in_time_(in_time) {}
  Result<void> covers(const KernelKey& key, Route route) const override {
    return fake_.covers(key, route);
  }
  Result<std::string> compiler(Route route) const override { return fake_.compiler(route); }
  std::string fingerprint() const override { return fake_.fingerprint(); }
  Result<Ptx> emit(const KernelKey& key, const Target& target, Route route) const override {
    if (held_ == Held::prompts && key.type == KernelType::attend_tokens) hold();
    return fake_.emit(key, target, route);
  }
  Result<Ptx> emit(const Program& program, const Target& target) const override {
    if (held_ == Held::program) hold();
    return fake_.emit(program, target);
  }
  Result<Ptx> emit(const CustomKernel& kernel, const Target& target) const override {
    return fake_.emit(kernel, target);
  }
  const Assembler& assembler() const override { return fake_.assembler(); }

 private:
  void hold() const {
    begun_.set_value();
    in_time_ = go_.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  }

  FakeToolchain fake_;
  const Held held_;
  std::promise<void>& begun_;
  std::shared_future<void> go_;
  std::atomic<bool>& in_time_;
};

class HeldBuildTest : public ::testing::TestWithParam<Held> {};

TEST_P(HeldBuildTest, PassesWhileTheWeightsAreUploaded) {
  FakeDriver fake;
  std::promise<void> begun, uploading;
  std::future<void> has_begun = begun.get_future();
  const std::shared_future<void> go = uploading.get_future().share();
  std::atomic<bool> in_time = false;
  Platform platform = fake.platform();
  platform.toolchain = [&] {
    return std::make_unique<HeldToolchain>(GetParam(), begun, go, in_time);
  };
  std::vector<std::string> lines;
  std::mutex mutex;
  SessionOptions options;
  options.executor = ExecutorKind::mega;
  options.plan.context = 32;
  options.disk_cache = false;
  options.log = [&](LogLevel, std::string_view line) {
    const std::lock_guard lock(mutex);
    lines.emplace_back(line);
  };
  bool told = false, early = false;
  options.progress = [&](std::string_view what, std::int64_t, std::int64_t) {
    if (what != "uploading weights" || std::exchange(told, true)) return;
    early = has_begun.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
    uploading.set_value();
  };
  const auto session = open_session(make_model(), options, platform);
  ASSERT_TRUE(session) << session.error().text();
  EXPECT_TRUE(early);    // before the upload
  EXPECT_TRUE(in_time);  // and not in its way
  const SessionReport& report = (*session)->report();
  EXPECT_EQ(report.executor, "mega");
  EXPECT_GT(report.build_wait_seconds, 0);
  EXPECT_LE(report.build_wait_seconds, report.build_seconds);
  EXPECT_TRUE(lines.back().starts_with("lathe,1,session,opened,executor=mega,build_ms="))
      << lines.back();
}

// Lines of the log that tell of a matrix-vector product's kernel.
int products_built(FakeOptions fake_options, ExecutorKind kind, std::string* executor) {
  FakeDriver fake(fake_options);
  std::atomic<int> products = 0;
  SessionOptions options;
  options.executor = kind;
  options.plan.context = 32;
  options.disk_cache = false;
  options.log = [&](LogLevel, std::string_view line) {
    if (line.find("kernel,built,key=matvec.") != std::string_view::npos) ++products;
  };
  const auto session = open_session(make_model(), options, fake.platform());
  EXPECT_TRUE(session) << session.error().text();
  if (session) *executor = (*session)->report().executor;
  return products;
}

TEST(BuildTest, MakesNoKernelThatThePersistentOneStandsFor) {
  std::string executor;
  EXPECT_EQ(products_built({}, ExecutorKind::mega, &executor), 0);
  EXPECT_EQ(executor, "mega");
  const int products = products_built({}, ExecutorKind::graph, &executor);
  EXPECT_GT(products, 0);
  EXPECT_EQ(executor, "graph");
  // Where no block of it fits, the graph's are made after all.
  EXPECT_EQ(products_built({.blocks_per_multiprocessor = 0}, ExecutorKind::automatic, &executor),
            products);
  EXPECT_EQ(executor, "graph");
}

INSTANTIATE_TEST_SUITE_P(, HeldBuildTest, ::testing::Values(Held::program, Held::prompts),
                         [](const auto& held) {
                           return held.param == Held::program ? "program" : "prompts";
                         });

}  // namespace
}  // namespace lathe::testing
