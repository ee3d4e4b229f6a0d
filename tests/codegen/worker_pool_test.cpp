// Owns the tests of worker_pool.h: every number is worked at once, and one whose process dies,
// hangs or wants a fresh process costs no other.
#include "tests/codegen/worker_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <map>

namespace lathe::testing {
namespace {

TEST(WorkerPool, WhatDiesOrHangsCostsItsNumberOnly) {
  constexpr int kNumbers = 40;
  void* memory = mmap(nullptr, kNumbers * sizeof(int), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  int* times = static_cast<int*>(memory);
  const auto make_work = [&](int) -> std::function<bool(std::int64_t)> {
    return [&](std::int64_t number) {
      ++times[number];
      if (number == 7) raise(SIGSEGV);
      if (number == 20) _exit(3);
      if (number == 21) pause();
      return number % 5 != 0;
    };
  };
  std::map<std::int64_t, std::string> lost;
  const PoolOptions options{.workers = 3,
                            .first = 2,
                            .past = kNumbers,
                            .most = std::chrono::seconds(300),
                            .most_each = std::chrono::seconds(2)};
  const PoolOutcome outcome = share_out(
      options, make_work, [&](std::int64_t number, const std::string& how) { lost[number] = how; },
      [](std::int64_t) {});
  EXPECT_EQ(outcome.done, kNumbers - 2);
  EXPECT_EQ(outcome.lost, 3);
  for (int i = 0; i < kNumbers; ++i) EXPECT_EQ(times[i], i < 2 ? 0 : 1) << i;
  EXPECT_EQ(lost.size(), 3u);
  EXPECT_NE(lost[7].find("died"), std::string::npos) << lost[7];
  EXPECT_NE(lost[20].find("status 3"), std::string::npos) << lost[20];
  EXPECT_EQ(lost[21], "took too long");
  munmap(memory, kNumbers * sizeof(int));
}

TEST(WorkerPool, ProcessesThatNeverBeginAreLost) {
  int told = 0;
  const PoolOutcome outcome = share_out(
      {.workers = 2, .past = 10}, [](int) -> std::function<bool(std::int64_t)> { _exit(3); },
      [&](std::int64_t, const std::string& how) {
        EXPECT_NE(how.find("status 3"), std::string::npos) << how;
        ++told;
      },
      [](std::int64_t) {});
  EXPECT_EQ(told, 2);
  EXPECT_EQ(outcome.done, 0);
  EXPECT_EQ(outcome.lost, 2);
}

TEST(WorkerPool, BeginsNothingAfterItsTime) {
  const PoolOutcome outcome = share_out(
      {.workers = 2, .past = 1000, .most = std::chrono::seconds(0)},
      [](int) { return [](std::int64_t) { return true; }; },
      [](std::int64_t, const std::string&) {}, [](std::int64_t) {});
  EXPECT_EQ(outcome.done, 0);
  EXPECT_EQ(outcome.lost, 0);
}

}  // namespace
}  // namespace lathe::testing
