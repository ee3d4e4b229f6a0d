// Owns the tests of the NVRTC route: what it emits for every kernel, without a GPU. Of each
// kernel's targets the first and the last; ptxas_test has the others.
#include <gtest/gtest.h>

#include <vector>

#include "tests/codegen/kernel_cases.h"
#include "tests/codegen/ptx_text.h"
#include "tests/support/compilers.h"

namespace lathe {
namespace {

using testing::compilers;

class NvrtcRouteTest : public ::testing::TestWithParam<testing::Family> {
 protected:
  void SetUp() override {
    if (const Result<void> there = compilers().available(Route::nvrtc); !there)
      GTEST_SKIP() << there.error().message;
  }
};

INSTANTIATE_TEST_SUITE_P(Kernels, NvrtcRouteTest, ::testing::ValuesIn(testing::families()),
                         [](const auto& info) { return info.param.name(); });

TEST_P(NvrtcRouteTest, EmitsCleanPtx) {
  for (const KernelKey& key : testing::representative_keys(GetParam())) {
    const std::vector<Target> targets = testing::tested_targets(key);
    for (const Target& target : {targets.front(), targets.back()}) {
      const Result<Ptx> ptx = emit(key, target, Route::nvrtc, compilers());
      ASSERT_TRUE(ptx) << ptx.error().text();
      EXPECT_EQ(testing::broken_rules(*ptx, key), "") << key.text() << " " << target.name();
      EXPECT_EQ(ptx->route, Route::nvrtc);
      EXPECT_NE(ptx->compiler.find("NVRTC"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace lathe
