// Owns the tests of emit() that need no compiler: what it refuses, and in which words.
#include "lathe/codegen/emit.h"

#include <gtest/gtest.h>

#include <string>

#include "lathe/codegen/kernel_table.h"

namespace lathe {
namespace {

// Compilers that are not there.
const Compilers& none() {
  static const Compilers shared({.nvrtc = "/nowhere/libnvrtc.so.13", .llvm = "/nowhere/llvm.so"});
  return shared;
}

TEST(NvrtcRoute, SaysWhyItCannotRun) {
  const Result<void> there = none().available(Route::nvrtc);
  ASSERT_FALSE(there);
  EXPECT_NE(there.error().text().find("/nowhere/libnvrtc.so.13"), std::string::npos);
  const KernelKey key = *parse_key("glu.f32.n14336");
  const Result<Ptx> ptx = emit(key, *parse_target("sm_90a"), Route::nvrtc, none());
  EXPECT_FALSE(ptx);
}

TEST(NvrtcRoute, RefusesWhatTheCheckRefuses) {
  const KernelKey key = *parse_key("gemv.q4_k.k100.n8");
  const Result<Ptx> ptx = emit(key, *parse_target("sm_90a"), Route::nvrtc, none());
  ASSERT_FALSE(ptx);
  EXPECT_NE(ptx.error().text().find("k is 100"), std::string::npos) << ptx.error().text();
}

TEST(NvrtcRoute, SourceSaysForHowManyBlocksThereAreRegisters) {
  const auto says = [](const char* key, const char* bounds) {
    const Result<std::string> source = cuda_source(*parse_key(key));
    return source && source->find(bounds) != std::string::npos;
  };
  EXPECT_TRUE(says("matmul.q4_k.k256.n64.m8.w9.bl2", "__launch_bounds__(288, 2)"));
  EXPECT_TRUE(says("matmul.q4_k.k256.n64.m8.w9.bl2.st2", "__launch_bounds__(288, 1)"));
}

TEST(NvrtcRoute, SourceNamesOpAndShape) {
  const Result<std::string> source = cuda_source(*parse_key("gemv.q4_k.k4096.n14336.bias.w8"));
  ASSERT_TRUE(source);
  for (const char* part : {"#include \"ops/gemv.h\"", "__launch_bounds__(256",
                           "gemv_q4_k_k4096_n14336_w8_bias(", "nullptr", "4096, 14336, 8, 1"})
    EXPECT_NE(source->find(part), std::string::npos) << part << " not in\n" << *source;
}

TEST(NvrtcRoute, WhatBeginsEarlyWaitsFirstAndLoadsWhatMayChangeAfterwards) {
  const std::string wait = "wait_for_predecessor();\n";
  const auto has = [](const Result<std::string>& source, const std::string& part) {
    return source->find(part) != std::string::npos;
  };
  const auto late = cuda_source(*parse_key("sample.f32.s4.w4"));
  const auto early = cuda_source(*parse_key("sample.f32.s4.w4.early"));
  ASSERT_TRUE(late && early);
  EXPECT_TRUE(has(late, "const float* __restrict__ partial") && !has(late, wait)) << *late;
  EXPECT_TRUE(has(early, "const float* partial") && !has(early, "__restrict__")) << *early;
  EXPECT_TRUE(has(early, wait + "  lathe::dev::sample(")) << *early;
  // Its op waits, once the first weights are on their way.
  const auto product = cuda_source(*parse_key("matvec.q4_k.k256.n16.w4.bl1.early.norm"));
  ASSERT_TRUE(product);
  EXPECT_TRUE(has(product, "const float* x,") && !has(product, wait)) << *product;
  for (const char* constant : {"char* __restrict__ weights", "float* __restrict__ norm"})
    EXPECT_TRUE(has(product, constant)) << *product;
}

TEST(Emit, WhatBeginsEarlyNeedsItsInstructionsAndACompiler) {
  const KernelKey key = *parse_key("sample.f32.s4.w4.early");
  const Result<void> old = target_covers(key, *parse_target("sm_89"));
  ASSERT_FALSE(old);
  EXPECT_NE(old.error().message.find("sm_89 has no waiting"), std::string::npos);
  EXPECT_TRUE(target_covers(key, *parse_target("sm_90")));
  EXPECT_FALSE(route_covers(key, Route::text));
  EXPECT_GE(instructions_of(key).ptx, 78);
}

TEST(Emit, FirstRouteThatWorksIsTakenAndRefusalsAreListed) {
  const KernelKey key = *parse_key("softmax.f32.k100.n2.w1");  // the text route has no template
  const Route order[] = {Route::text, Route::nvrtc};
  const Result<Ptx> ptx = emit_first(key, *parse_target("sm_90a"), order, none());
  ASSERT_FALSE(ptx);
  EXPECT_EQ(ptx.error().code, Code::not_eligible);
  EXPECT_EQ(ptx.error().details.size(), 2u);
  EXPECT_NE(ptx.error().text().find("/nowhere/libnvrtc.so.13"), std::string::npos);
}

TEST(Emit, TargetsWithoutTheInstructionsAreRefused) {
  const KernelKey key = *parse_key("matvec.q4_k.k4096.n4096.w16.bl132.st3");
  for (const char* name : {"sm_80", "sm_89"}) {
    for (Route route : {Route::nvrtc, Route::llvm}) {
      const Result<Ptx> ptx = emit(key, *parse_target(name), route, none());
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

TEST(Emit, KeysOfOneTypeMayNeedMoreThanOthers) {
  const struct {
    const char* key;
    const char* too_old;  // null: none
    const char* says;
    const char* first;
  } keys[] = {
      {"gemm.f16.k64.n8.m4.w8", nullptr, "", "sm_80"},
      {"gemm.f64.k64.n8.m4.w8", nullptr, "", "sm_80"},
      {"gemm.fp8_e4m3.k64.n8.m4.w8", "sm_87", "sm_87 has no products of fp8_e4m3", "sm_89"},
      {"gemm.fp8_e4m3.k64.n8.m4.w9.grouped", "sm_90", "sm_90a alone does", "sm_90a"},
      {"gemm_operand.f16.k64.n8.w1", nullptr, "", "sm_80"},
      {"gemm_operand.fp8_e4m3.k64.n8.w1", "sm_86", "no conversions to fp8_e4m3", "sm_89"},
  };
  for (const auto& [text, too_old, says, first] : keys) {
    const KernelKey key = *parse_key(text);
    EXPECT_TRUE(target_covers(key, *parse_target(first))) << text;
    if (!too_old) continue;
    const Result<void> covered = target_covers(key, *parse_target(too_old));
    ASSERT_FALSE(covered) << text;
    EXPECT_EQ(covered.error().code, Code::not_eligible);
    EXPECT_NE(covered.error().message.find(says), std::string::npos) << covered.error().text();
  }
}

TEST(Emit, FingerprintIsStable) {
  EXPECT_EQ(codegen_fingerprint(), codegen_fingerprint());
  EXPECT_EQ(codegen_fingerprint().size(), 32u);
}

}  // namespace
}  // namespace lathe
