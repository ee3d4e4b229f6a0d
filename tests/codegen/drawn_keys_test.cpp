// Holds the table to any key that somebody may write: it is a kernel, or it is refused with a
// reason.
#include <gtest/gtest.h>

#include "lathe/codegen/emit.h"
#include "tests/codegen/drawn_keys.h"

namespace lathe {
namespace {

TEST(DrawnKeys, AreKernelsOrRefusedWithAReason) {
  const std::uint64_t seed = verification::fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  verification::Random random(seed);
  int kernels = 0;
  constexpr int kKeys = 20000;
  for (int i = 0; i < kKeys && !HasFailure(); ++i) {
    const KernelKey key = testing::drawn_key(random);
    EXPECT_EQ(testing::table_faults(key), "") << key.text();
    kernels += bool(check_key(key));
  }
  // Neither nearly none nor nearly all, or little was tested.
  EXPECT_GT(kernels, kKeys / 10);
  EXPECT_LT(kernels, kKeys * 9 / 10);
  RecordProperty("kernels", kernels);
}

}  // namespace
}  // namespace lathe
