// Owns the proof that a kernel's text is the same from run to run: kernels of the table by every
// route in two processes, which take them in opposite orders, so that neither addresses nor what
// was compiled before may show. Every third kernel: the seed chooses which, so that each has its
// turn.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <map>
#include <string>

#include "tests/codegen/kernel_cases.h"
#include "tests/codegen/worker_pool.h"
#include "tests/support/compilers.h"
#include "tests/support/seed.h"

namespace lathe::testing {
namespace {

constexpr Route kRoutes[] = {Route::nvrtc, Route::llvm, Route::text};
constexpr std::size_t kLongest = std::size_t{4} << 20;

// Every text of one process, in memory that it shares: none where the route does not serve the key.
using Text = char[kLongest];

constexpr std::size_t kParts = 3;

TEST(TextStability, OfAnyKernelInAnyProcessAndOrder) {
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Target target = *parse_target("sm_90a");
  std::vector<KernelKey> keys;
  for (std::size_t i = seed % kParts; i < families().size(); i += kParts) {
    const Family& family = families()[i];
    const std::vector<KernelKey> all = representative_keys(family);
    keys.push_back(all[static_cast<std::size_t>(family.format) % all.size()]);
  }
  const std::size_t texts = keys.size() * std::size(kRoutes);
  void* memory = mmap(nullptr, 2 * texts * sizeof(Text), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  Text* all = static_cast<Text*>(memory);
  const auto text_of = [&](std::int64_t process, std::size_t key, std::size_t route) -> Text& {
    return all[static_cast<std::size_t>(process) * texts + key * std::size(kRoutes) + route];
  };
  const auto make_work = [&](int) -> std::function<bool(std::int64_t)> {
    return [&](std::int64_t process) {
      for (std::size_t i = 0; i < keys.size(); ++i) {
        const std::size_t at = process == 0 ? i : keys.size() - 1 - i;
        for (std::size_t r = 0; r < std::size(kRoutes); ++r) {
          const Result<Ptx> ptx = emit(keys[at], target, kRoutes[r], compilers());
          if (ptx) ptx->text.copy(text_of(process, at, r), kLongest - 1);
        }
      }
      return true;
    };
  };
  const PoolOutcome outcome = share_out(
      {.workers = 2, .past = 2, .most_each = std::chrono::seconds(3000)}, make_work,
      [](std::int64_t, const std::string& how) { ADD_FAILURE() << how; }, [](std::int64_t) {});
  ASSERT_EQ(outcome.done, 2);
  std::map<Route, int> emitted;
  for (std::size_t i = 0; i < keys.size(); ++i)
    for (std::size_t r = 0; r < std::size(kRoutes); ++r) {
      const std::string first = text_of(0, i, r), second = text_of(1, i, r);
      EXPECT_EQ(first == second, true) << keys[i].text() << " " << route_name(kRoutes[r]);
      EXPECT_LT(first.size(), kLongest - 1);
      emitted[kRoutes[r]] += !first.empty();
    }
  munmap(memory, 2 * texts * sizeof(Text));
  for (const Route route : kRoutes) {
    RecordProperty(route_name(route), emitted[route]);
    if (route == Route::text || compilers().available(route)) {
      EXPECT_GT(emitted[route], 0) << route_name(route);
    }
  }
}

}  // namespace
}  // namespace lathe::testing
