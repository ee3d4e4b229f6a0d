// Owns the tests of the static checks of PTX: each notices its fault and passes what is right. The
// tests of the routes hold every kernel to them.
#include "tests/codegen/ptx_lint.h"

#include <gtest/gtest.h>

#include <string>

namespace lathe::testing {
namespace {

// A kernel with this body, which may use %r<4>, %rd<4> and %p.
std::string kernel(const std::string& body,
                   const std::string& head = ".version 8.0\n.target sm_90a",
                   const std::string& globals = "") {
  return head + "\n.address_size 64\n" + globals +
         "// a comment with a ; and a { and %x\n"
         ".visible .entry k(\n  .param .u64 .ptr .global .align 16 x,\n  .param .u64 y\n)\n"
         ".maxntid 128, 1, 1\n{\n"
         ".reg .b32 %r<4>;\n.reg .b64 %rd<4>;\n.reg .pred %p;\n"
         "ld.param.u64 %rd0, [x];\ncvta.to.global.u64 %rd1, %rd0;\nmov.u32 %r0, %tid.x;\n"
         "setp.eq.u32 %p, %r0, 0;\n@%p bra DONE;\n" +
         body + "DONE:\nret;\n}\n";
}

std::string faults(const std::string& text, unsigned shared = 0) {
  return ptx_faults(text, {{8, 8}, 128, shared});
}

void expect_fault(const std::string& text, const std::string& part, unsigned shared = 0) {
  const std::string found = faults(text, shared);
  EXPECT_NE(found.find(part), std::string::npos) << "found: " << found << "\nin\n" << text;
}

TEST(PtxLint, SoundTextHasNoFault) {
  EXPECT_EQ(faults(kernel("")), "");
  EXPECT_EQ(faults(kernel("ld.global.v2.u32 {%r1, %r2}, [%rd1+8];\nst.global.u32 [%rd1], %r1;\n")),
            "");
  // Inline assembly has scopes of its own, with the same names again.
  const std::string vote =
      "{.reg .pred q; setp.ne.u32 q, %r0, 0; vote.sync.ballot.b32 %r1, q, 0xffffffff;}\n";
  EXPECT_EQ(faults(kernel(vote + vote)), "");
  const std::string loop =
      "{.reg .pred q; AGAIN: setp.ne.u32 q, %r0, 0; @q bra AGAIN; bra DONE;}\n";
  EXPECT_EQ(faults(kernel(loop + loop)), "");
  EXPECT_EQ(
      faults(kernel("LOOP:\nadd.s32 %r0, %r0, 1;\nsetp.lt.s32 %p, %r0, 9;\n@!%p bra LOOP;\n")), "");
}

TEST(PtxLint, RegistersAreDeclaredNamedAndWritten) {
  expect_fault(kernel("mov.u32 %r4, 1;\n"), "%r4 is not declared");
  expect_fault(kernel("mov.u32 %q, 1;\n"), "%q is not declared");
  expect_fault(kernel("{.reg .pred q; setp.ne.u32 q, %r0, 0;}\n@q bra DONE;\n"),
               "q is not declared");
  expect_fault(kernel(".reg .f32 %f<3>;\n"), "the register %f is never named");
  expect_fault(kernel("{.reg .b32 t;}\n"), "the register t is never named");
  expect_fault(kernel(".reg .b32 %r<4>;\n"), "%r is declared twice");
  expect_fault(kernel("st.global.u32 [%rd1], %r2;\n"), "%r2 is read and never written");
  expect_fault(kernel("@%p st.global.u32 [%rd3], %r0;\n"), "%rd3 is read and never written");
  // What another scope's register of this name does is no help.
  expect_fault(kernel("{.reg .b32 t; mov.u32 t, 1; add.u32 %r1, t, 1;}\n"
                      "{.reg .b32 t; add.u32 %r1, t, 1;}\n"),
               "t is read and never written");
}

TEST(PtxLint, LabelsStandOnce) {
  expect_fault(kernel("L: mov.u32 %r1, 1;\nL: mov.u32 %r1, 2;\n"), "the label L stands twice");
  expect_fault(kernel("bra NOWHERE;\n"), "there is no label NOWHERE");
  const std::string table = "T: .branchtargets A, B;\nbrx.idx %r0, T;\nA: mov.u32 %r1, 1;\n";
  EXPECT_EQ(faults(kernel(table + "B: mov.u32 %r1, 2;\n")), "");
  expect_fault(kernel(table), "there is no label B");
  expect_fault(kernel("{L: mov.u32 %r1, 1;}\nbra L;\n"), "there is no label L");
}

TEST(PtxLint, AccessesHaveTheSpaceOfTheirVariable) {
  const std::string head = ".version 8.0\n.target sm_90a";
  const std::string shared = ".extern .shared .align 16 .b8 s[];\n";
  const auto with_shared = [&](const std::string& body) { return kernel(body, head, shared); };
  EXPECT_EQ(faults(with_shared("ld.shared.u32 %r1, [s+4];\n"), 64), "");
  EXPECT_EQ(faults(with_shared("mov.u32 %r1, s;\nadd.u32 %r2, %r1, %r0;\n"
                               "st.shared.u32 [%r2], %r0;\n"),
                   64),
            "");
  expect_fault(with_shared("ld.global.u32 %r1, [s];\n"), "ld.global.u32 of an address in shared",
               64);
  expect_fault(with_shared("mov.u64 %rd2, s;\ncvta.shared.u64 %rd3, %rd2;\n"
                           "ld.shared.u32 %r1, [%rd3];\n"),
               "ld.shared.u32 of an address in generic", 64);
  expect_fault(with_shared("mov.u64 %rd2, s;\nld.u32 %r1, [%rd2];\n"),
               "ld.u32 of an address in shared", 64);
  expect_fault(kernel("st.shared.u32 [%rd1+4], %r0;\n"), "st.shared.u32 of an address in global");
  expect_fault(kernel("ld.global.u64 %rd2, [y];\n"), "ld.global.u64 of an address in param");
}

TEST(PtxLint, ParametersAndBlocksAreTheLaunchs) {
  EXPECT_EQ(ptx_faults(kernel(""), {{8, 8}, 128, 0}), "");
  EXPECT_NE(ptx_faults(kernel(""), {{8}, 128, 0}).find("parameters of {8 8} bytes"),
            std::string::npos);
  EXPECT_NE(ptx_faults(kernel(""), {{8, 4}, 128, 0}).find("the launch has {8 4}"),
            std::string::npos);
  EXPECT_NE(
      ptx_faults(kernel(""), {{8, 8}, 256, 0}).find("made for 128 threads, launched with 256"),
      std::string::npos);
  EXPECT_NE(ptx_faults("", {{}, 32, 0}).find("0 entry points"), std::string::npos);
}

TEST(PtxLint, InstructionsAreOfTheStatedVersionAndTarget) {
  const std::string wait = "griddepcontrol.wait;\n";
  EXPECT_EQ(faults(kernel(wait)), "");
  expect_fault(kernel(wait, ".version 7.4\n.target sm_90"), "griddepcontrol.wait needs PTX 7.8");
  expect_fault(kernel(wait, ".version 8.0\n.target sm_89"), "griddepcontrol.wait needs sm_90");
  const std::string accelerated = "setmaxnreg.inc.sync.aligned.u32 64;\n";
  EXPECT_EQ(faults(kernel(accelerated)), "");
  expect_fault(kernel(accelerated, ".version 8.0\n.target sm_90"), "needs sm_90a");
}

TEST(PtxLint, LoopsEndInConditionalBranches) {
  const std::string chip = ".version 8.7\n.target sm_120";
  const std::string loop = "AGAIN:\n@%p bra DONE;\nbra.uni AGAIN;\n";
  EXPECT_EQ(faults(kernel(loop)), "");
  expect_fault(kernel(loop, chip), "an unconditional branch back to AGAIN");
  expect_fault(kernel("{ AGAIN: @%p bra DONE; bra AGAIN; }\n", chip), "branch back to AGAIN");
  EXPECT_EQ(faults(kernel("AGAIN:\n@%p bra AGAIN;\nbra DONE;\n", chip)), "");
}

TEST(PtxLint, SharedMemoryIsStaticOrDynamic) {
  const std::string head = ".version 8.0\n.target sm_90a";
  const std::string some = ".shared .align 4 .b32 s[16];\n";
  EXPECT_EQ(faults(kernel("st.shared.u32 [s], %r0;\n", head, some)), "");
  expect_fault(kernel("st.shared.u32 [s], %r0;\n", head, some), "static and dynamic", 64);
  expect_fault(kernel("", head, ".shared .align 4 .b8 s[300000];\n"),
               "300000 bytes of shared memory");
  expect_fault(kernel("", head, ".extern .shared .b8 s[];\n"), "240000 bytes of shared memory",
               240000);
}

}  // namespace
}  // namespace lathe::testing
