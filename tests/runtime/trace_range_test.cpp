// Shows a stand-in for a profiler the ranges of a session, which must be named and nested.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "runtime/session_base.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

TEST(TraceRanges, NameWhatIsDoneAndNest) {
  // Before the first range, for NVTX looks once.
  ASSERT_EQ(::setenv("NVTX_INJECTION64_PATH", LATHE_TEST_PROFILER, 1), 0);
  const auto file = make_model(1);
  FakeDriver fake;
  SessionOptions options;
  options.executor = ExecutorKind::eager;
  options.plan.context = 16;
  options.disk_cache = false;
  auto session = open_session(file, options, fake.platform());
  ASSERT_TRUE(session) << session.error().text();
  ASSERT_TRUE((*session)->step(1));

  void* profiler = ::dlopen(LATHE_TEST_PROFILER, RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(profiler, nullptr) << "NVTX did not load it";
  const auto seen = reinterpret_cast<const char* (*)()>(::dlsym(profiler, "lathe_seen_ranges"));
  ASSERT_NE(seen, nullptr);
  const std::string text = seen();
  EXPECT_NE(text.find("open session{"), std::string::npos) << text;
  std::string step = "step{";
  for (const Step& each : (*session)->plan().steps) step += each.key.text() + "{}";
  EXPECT_TRUE(text.ends_with(step + "lathe_advance{}}")) << text;
  for (const KernelKey& key : (*session)->plan().distinct_keys())
    EXPECT_NE(text.find("build " + key.text() + "{"), std::string::npos) << key.text();
  ::dlclose(profiler);
}

}  // namespace
}  // namespace lathe::testing
