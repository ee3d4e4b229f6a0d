// Owns the tests of a key's trial: it counts what happens, and notices what is wrong.
#include "tests/codegen/key_trial.h"

#include <gtest/gtest.h>

#include <string>

#include "runtime/assembler.h"
#include "tests/support/compilers.h"

namespace lathe::testing {
namespace {

std::unique_ptr<Assembler> assembler() {
  auto found = open_nvjitlink(path_or("LATHE_NVJITLINK", LATHE_TEST_NVJITLINK));
  return found ? std::move(*found) : nullptr;
}

TrialTools tools(const Assembler* assembler) {
  return {.compilers = &compilers(),
          .routes = {Route::nvrtc, Route::text},
          .target = *parse_target("sm_90a"),
          .assembler = assembler};
}

TEST(KeyTrial, CountsWhatHappens) {
  if (const auto there = compilers().available(Route::nvrtc); !there)
    GTEST_SKIP() << there.error().message;
  const auto with = assembler();
  TrialTally tally{};
  EXPECT_EQ(try_key(*parse_key("rms_norm.f32.k512.n1.w4.eps1e-5"), 1, tools(with.get()), tally),
            std::vector<std::string>{});
  EXPECT_EQ(tally.kernels, 1);
  EXPECT_EQ(tally.emulated, 1);
  for (const Route route : {Route::nvrtc, Route::text}) {
    const TrialTally::ByRoute& by = tally.routes[static_cast<int>(route)];
    EXPECT_EQ(by.emitted, 1);
    EXPECT_EQ(by.same_text, 1);
    EXPECT_EQ(by.assembled, with ? 1 : 0);
    EXPECT_EQ(by.with_stack + by.launched + by.exact, 0);
  }
  KernelKey wrong = *parse_key("rms_norm.f32.k512.n1.w4.eps1e-5");
  wrong.k = -1;
  EXPECT_EQ(try_key(wrong, 1, tools(with.get()), tally), std::vector<std::string>{});
  EXPECT_EQ(tally.refused, 1);
  TrialTools old = tools(with.get());
  old.target = *parse_target("sm_80");
  EXPECT_EQ(try_key(*parse_key("matvec.q8_0.k512.n64.w4.bl2.st2"), 1, old, tally),
            std::vector<std::string>{});
  EXPECT_EQ(tally.unserved, 1);
  EXPECT_EQ(tally.kernels, 1);
}

TEST(KeyTrial, LargeKernelsAreAssembledOnly) {
  TrialTools small = tools(nullptr);
  small.routes = {Route::text};
  small.most_bytes = 1000;
  TrialTally tally{};
  EXPECT_EQ(try_key(*parse_key("rms_norm.f32.k512.n1.w4.eps1e-5"), 1, small, tally),
            std::vector<std::string>{});
  EXPECT_EQ(tally.too_large, 1);
  EXPECT_EQ(tally.emulated, 0);
  EXPECT_EQ(tally.routes[static_cast<int>(Route::text)].emitted, 1);
}

TEST(KeyTrial, CubinsTellOfTheirStack) {
  const auto with = assembler();
  if (!with) GTEST_SKIP() << "no nvJitLink here";
  const Target target = *parse_target("sm_90a");
  const auto stack = [&](const std::string& body) {
    const Result<Cubin> cubin = with->assemble(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 x) {\n"
        ".reg .b64 %a<4>;\n.reg .b32 %r<4>;\nld.param.u64 %a0, [x];\n" +
            body + "st.global.u32 [%a0], %r0;\nret;\n}\n",
        target);
    EXPECT_TRUE(cubin) << cubin.error().text();
    return cubin ? cubin_stack_bytes(*cubin) : -2;
  };
  EXPECT_EQ(stack("mov.u32 %r0, 5;\n"), 0);
  // Indexed by what only the launch knows, so that it cannot be kept in registers.
  EXPECT_EQ(stack(".local .align 4 .b8 s[256];\nmov.u32 %r1, %tid.x;\nshl.b32 %r2, %r1, 2;\n"
                  "mov.u64 %a1, s;\ncvt.u64.u32 %a2, %r2;\nadd.u64 %a3, %a1, %a2;\n"
                  "st.local.u32 [%a3], %r1;\nld.local.u32 %r0, [s+16];\n"),
            256);
  EXPECT_EQ(cubin_stack_bytes({}), -1);
  EXPECT_EQ(cubin_stack_bytes(std::vector<std::byte>(64, std::byte{0xff})), -1);
}

}  // namespace
}  // namespace lathe::testing
