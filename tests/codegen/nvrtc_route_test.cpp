// Owns the tests of the NVRTC route: what it emits for every kernel and target, without a GPU.
#include <gtest/gtest.h>

#include "lathe/codegen/custom_kernel.h"
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

TEST_P(NvrtcRouteTest, EmitsCleanPtxForEveryTarget) {
  for (const KernelKey& key : testing::representative_keys(GetParam())) {
    for (const Target& target : testing::tested_targets(key)) {
      const Result<Ptx> ptx = emit(key, target, Route::nvrtc, compilers());
      ASSERT_TRUE(ptx) << ptx.error().text();
      EXPECT_EQ(testing::broken_rules(*ptx, key), "") << key.text() << " " << target.name();
      EXPECT_EQ(ptx->route, Route::nvrtc);
      EXPECT_NE(ptx->compiler.find("NVRTC"), std::string::npos);
    }
  }
}

TEST(NvrtcRoute, SaysWhyItCannotRun) {
  const Compilers nowhere({.nvrtc = "/nowhere/libnvrtc.so.13", .llvm = ""});
  const Result<void> there = nowhere.available(Route::nvrtc);
  ASSERT_FALSE(there);
  EXPECT_NE(there.error().text().find("/nowhere/libnvrtc.so.13"), std::string::npos);
  const testing::Family family{KernelType::glu, Format::f32};
  const KernelKey key = testing::representative_keys(family).front();
  const Result<Ptx> ptx = emit(key, *parse_target("sm_90a"), Route::nvrtc, nowhere);
  EXPECT_FALSE(ptx);
}

TEST(NvrtcRoute, RefusesWhatTheCheckRefuses) {
  const KernelKey key = *parse_key("gemv.q4_k.k100.n8");
  const Result<Ptx> ptx = emit(key, *parse_target("sm_90a"), Route::nvrtc, compilers());
  ASSERT_FALSE(ptx);
  EXPECT_NE(ptx.error().text().find("k is 100"), std::string::npos) << ptx.error().text();
}

TEST(NvrtcRoute, SourceNamesOpAndShape) {
  const Result<std::string> source = cuda_source(*parse_key("gemv.q4_k.k4096.n14336.bias.w8"));
  ASSERT_TRUE(source);
  for (const char* part : {"#include \"ops/gemv.h\"", "__launch_bounds__(256",
                           "gemv_q4_k_k4096_n14336_w8_bias(", "nullptr", "4096, 14336, 8, 1"})
    EXPECT_NE(source->find(part), std::string::npos) << part << " not in\n" << *source;
}

TEST(Emit, FirstRouteThatWorksIsTakenAndRefusalsAreListed) {
  const KernelKey key = *parse_key("argmax.f32.n100.s2.w1");  // the text route has no template
  const Compilers none({.nvrtc = "/nowhere/nvrtc.so", .llvm = "/nowhere/llvm.so"});
  const Route order[] = {Route::text, Route::nvrtc};
  const Result<Ptx> ptx = emit_first(key, *parse_target("sm_90a"), order, none);
  ASSERT_FALSE(ptx);
  EXPECT_EQ(ptx.error().code, Code::not_eligible);
  EXPECT_EQ(ptx.error().details.size(), 2u);
  EXPECT_NE(ptx.error().text().find("/nowhere/nvrtc.so"), std::string::npos);
}

TEST(Emit, TargetsWithoutTheInstructionsAreRefused) {
  const KernelKey key = *parse_key("matvec.q4_k.k4096.n4096.w16.bl132.st3");
  for (const char* name : {"sm_80", "sm_89"}) {
    for (Route route : {Route::nvrtc, Route::llvm}) {
      const Result<Ptx> ptx = emit(key, *parse_target(name), route, compilers());
      ASSERT_FALSE(ptx);
      EXPECT_EQ(ptx.error().code, Code::not_eligible);
      EXPECT_NE(ptx.error().message.find(std::string(name) + " has no bulk copies"),
                std::string::npos)
          << ptx.error().text();
    }
  }
  EXPECT_TRUE(target_covers(key, *parse_target("sm_90")));
  EXPECT_TRUE(target_covers(key, *parse_target("sm_120")));
  EXPECT_TRUE(target_covers(*parse_key("gemv.q4_k.k256.n8"), *parse_target("sm_80")));
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

TEST(Emit, FingerprintIsStable) {
  EXPECT_EQ(codegen_fingerprint(), codegen_fingerprint());
  EXPECT_EQ(codegen_fingerprint().size(), 32u);
}

}  // namespace
}  // namespace lathe
