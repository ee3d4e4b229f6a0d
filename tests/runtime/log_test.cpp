// Holds the log to one whole line per event, where the user or the embedder wants it, and nowhere
// else.
#include "runtime/log.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>
#include <iterator>
#include <optional>

#include "runtime/device_impl.h"
#include "runtime/disk_cache.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/scratch_directory.h"

namespace lathe::testing {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(LogLines, QuoteWhatWouldBreakThem) {
  LogLine line("kernel", "built");
  line.field("key", "gemv.q8_0").field("ms", 1.234).field("registers", 40);
  line.field("why", "a, \"b\"\nc");
  EXPECT_EQ(line.text(),
            "lathe,1,kernel,built,key=gemv.q8_0,ms=1.23,registers=40,why=\"a, \"\"b\"\" c\"");
}

TEST(Logs, AFileIsAddedTo) {
  const ScratchDirectory scratch;
  const std::string path = scratch.path() + "/log";
  std::vector<std::string> notes;
  for (int i = 0; i < 2; ++i) {
    const Log log = Log::open({}, path, notes);
    ASSERT_TRUE(log);
    log.write(LogLevel::info, LogLine("a", "b").field("i", i));
  }
  EXPECT_EQ(contents(path), "lathe,1,a,b,i=0\nlathe,1,a,b,i=1\n");
  EXPECT_TRUE(notes.empty());
}

TEST(Logs, AFileThatCannotBeOpenedIsANote) {
  std::vector<std::string> notes;
  EXPECT_FALSE(Log::open({}, "/dev/null/log", notes));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("/dev/null/log"), std::string::npos);
  EXPECT_FALSE(Log::open({}, "", notes));
  EXPECT_EQ(notes.size(), 1u);
}

TEST(Logs, StderrIsWrittenToOnlyWhenAskedFor) {
  std::vector<std::string> notes;
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  Log::open({}, "stderr", notes).write(LogLevel::info, LogLine("a", "b"));
  Log::open([](LogLevel, std::string_view) {}, "stderr", notes)
      .write(LogLevel::info, LogLine("c", "d"));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "lathe,1,a,b\n");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
}

TEST(Logs, ADeviceTellsItsHook) {
  const ScratchDirectory scratch;
  const FakeDriver fake;
  std::vector<std::string> lines;
  DeviceOptions options;
  options.cache_directory = scratch.path();
  options.log = [&](LogLevel, std::string_view line) { lines.emplace_back(line); };
  KernelKey key{.type = KernelType::gemv, .format = Format::q8_0};
  key.k = 256;
  key.n = 64;
  for (int i = 0; i < 2; ++i) {
    const auto device = DeviceImpl::open(options, fake.platform()).value();
    ASSERT_TRUE(device->kernel(key));
    EXPECT_EQ(device->cache_counts().hits, 2 * i);
    EXPECT_EQ(device->cache_counts().writes, 2 - 2 * i);
  }
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_TRUE(lines[0].starts_with("lathe,1,device,opened,device=\"Fake GPU, ")) << lines[0];
  EXPECT_TRUE(lines[1].starts_with("lathe,1,kernel,built,key=gemv.q8_0.")) << lines[1];
  EXPECT_TRUE(lines[3].starts_with("lathe,1,kernel,cached,key=gemv.q8_0.")) << lines[3];
}

TEST(Logs, ACacheThatIsRefusedIsToldAndDoneWithout) {
  const FakeDriver fake;
  std::vector<std::string> lines;
  DeviceOptions options;
  options.cache_directory = "/dev/null/cache";
  options.log = [&](LogLevel, std::string_view line) { lines.emplace_back(line); };
  const auto device = DeviceImpl::open(options, fake.platform()).value();
  EXPECT_EQ(device->cache(), nullptr);
  EXPECT_EQ(device->cache_counts().misses, 0);
  ASSERT_GE(lines.size(), 1u);
  EXPECT_TRUE(lines[0].starts_with("lathe,1,cache,off,why=")) << lines[0];
  EXPECT_NE(device->notes()[0].find("/dev/null/cache"), std::string::npos);
}

// As one that waits for Python's lock does, which a thread has that asks for the notes.
TEST(Logs, AHookMayWaitForAThreadThatAsksTheCache) {
  const ScratchDirectory scratch;
  std::optional<DiskCache> cache;
  std::future<std::string> trouble;
  int evictions = 0;
  std::vector<std::string> notes;
  const Log log = Log::open(
      [&](LogLevel, std::string_view line) {
        if (!line.starts_with("lathe,1,cache,evict,")) return;
        ++evictions;
        trouble = std::async(std::launch::async, [&] { return cache->trouble(); });
        EXPECT_EQ(trouble.wait_for(std::chrono::seconds(10)), std::future_status::ready);
      },
      "", notes);
  auto opened = DiskCache::open(scratch.path() + "/cache", {.cap_bytes = 15000, .log = log});
  ASSERT_TRUE(opened) << opened.error().text();
  cache.emplace(std::move(*opened));
  const std::vector<std::byte> payload(6000);
  for (const char* key : {"first", "second", "third"}) ASSERT_TRUE(cache->store(key, payload));
  EXPECT_GT(evictions, 0);
}

}  // namespace
}  // namespace lathe::testing
