// Owns the tests of the NVRTC route: what it emits for every kernel, without a GPU. Of each
// kernel's targets the first or the last; ptxas_test holds what it assembles to the same rules.
#include <gtest/gtest.h>

#include <vector>

#include "lathe/codegen/custom_kernel.h"
#include "tests/codegen/kernel_cases.h"
#include "tests/codegen/ptx_lint.h"
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
  auto turn = static_cast<std::size_t>(GetParam().format);
  for (const KernelKey& key : testing::representative_keys(GetParam())) {
    const std::vector<Target> targets = testing::tested_targets(key);
    const Target target = turn++ % 2 == 0 ? targets.front() : targets.back();
    const Result<Ptx> ptx = emit(key, target, Route::nvrtc, compilers());
    ASSERT_TRUE(ptx) << ptx.error().text();
    EXPECT_EQ(testing::broken_rules(*ptx, key), "") << key.text() << " " << target.name();
    const std::string loops = testing::ptx_faults(testing::for_sm_120(*ptx), key);
    EXPECT_EQ(loops.find("an unconditional branch back"), std::string::npos) << loops;
    EXPECT_EQ(ptx->route, Route::nvrtc);
    EXPECT_NE(ptx->compiler.find("NVRTC"), std::string::npos);
  }
}

CustomKernel doubling() {
  return {.name = "doubling",
          .language = SourceLanguage::cuda,
          .source = "extern \"C\" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }",
          .entry = "twice",
          .geometry = {.grid_x = 1, .grid_y = 1, .threads = 32, .shared_bytes = 0},
          .params = {{"x", 4}}};
}

TEST(CustomKernels, OfCudaSourceBecomePtx) {
  if (const Result<void> there = compilers().available(Route::nvrtc); !there)
    GTEST_SKIP() << there.error().message;
  const Result<Ptx> ptx = emit_custom_kernel(doubling(), *parse_target("sm_90a"), compilers());
  ASSERT_TRUE(ptx) << ptx.error().text();
  EXPECT_NE(ptx->text.find(".entry twice("), std::string::npos) << ptx->text;
  EXPECT_NE(ptx->text.find(".target sm_90a"), std::string::npos) << ptx->text;
  EXPECT_EQ(ptx->geometry.threads, 32u);

  CustomKernel broken = doubling();
  broken.source = "extern \"C\" __global__ void twice(float* x) { y[0] = 2; }";
  const Result<Ptx> none = emit_custom_kernel(broken, *parse_target("sm_90a"), compilers());
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::compile);
  EXPECT_NE(none.error().message.find("doubling"), std::string::npos) << none.error().message;
  EXPECT_NE(none.error().text().find("\"y\" is undefined"), std::string::npos)
      << none.error().text();
}

TEST(CustomKernels, OfPtxNeedNoCompiler) {
  const Compilers nowhere({.nvrtc = "/nowhere/libnvrtc.so.13", .llvm = ""});
  CustomKernel kernel = doubling();
  kernel.language = SourceLanguage::ptx;
  kernel.source = ".version 8.0";
  const Result<Ptx> ptx = emit_custom_kernel(kernel, *parse_target("sm_90a"), nowhere);
  ASSERT_TRUE(ptx) << ptx.error().text();
  EXPECT_EQ(ptx->text, kernel.source);
  EXPECT_EQ(emit_custom_kernel(doubling(), *parse_target("sm_90a"), nowhere).error().code,
            Code::not_found);
}

}  // namespace
}  // namespace lathe
