// Owns the tests of when a session builds its persistent kernel, and of what it tells of the wait.
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

// Says when it begins to make a program, and goes on when `go` is set or ten seconds have passed.
class HeldToolchain final : public Toolchain {
 public:
  HeldToolchain(std::promise<void>& begun, std::shared_future<void> go, std::atomic<bool>& in_time)
      : begun_(begun), go_(std::move(go)), in_time_(in_time) {}
  Result<void> covers(const KernelKey& key, Route route) const override {
    return fake_.covers(key, route);
  }
  Result<std::string> compiler(Route route) const override { return fake_.compiler(route); }
  std::string fingerprint() const override { return fake_.fingerprint(); }
  Result<Ptx> emit(const KernelKey& key, const Target& target, Route route) const override {
    return fake_.emit(key, target, route);
  }
  Result<Ptx> emit(const Program& program, const Target& target) const override {
    begun_.set_value();
    in_time_ = go_.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
    return fake_.emit(program, target);
  }
  Result<Ptx> emit(const CustomKernel& kernel, const Target& target) const override {
    return fake_.emit(kernel, target);
  }
  const Assembler& assembler() const override { return fake_.assembler(); }

 private:
  FakeToolchain fake_;
  std::promise<void>& begun_;
  std::shared_future<void> go_;
  std::atomic<bool>& in_time_;
};

TEST(ProgramBuild, PassesWhileTheWeightsAreUploaded) {
  FakeDriver fake;
  std::promise<void> begun, uploading;
  std::future<void> has_begun = begun.get_future();
  const std::shared_future<void> go = uploading.get_future().share();
  std::atomic<bool> in_time = false;
  Platform platform = fake.platform();
  platform.toolchain = [&] { return std::make_unique<HeldToolchain>(begun, go, in_time); };
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

}  // namespace
}  // namespace lathe::testing
