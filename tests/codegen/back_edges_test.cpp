// Owns the tests of loops' ends for targets whose assembler drops iterations of some: what is
// written anew and what is not. The tests of the routes hold every kernel to it.
#include "codegen/back_edges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace lathe {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
  return found;
}

std::string kernel(const std::string& body) {
  return "// a comment: bra L; {\n.version 8.7\n.target sm_120\n"
         ".visible .entry k(\n\t.param .u64 x\n)\n.maxntid 128\n{\n" +
         body + "\tret;\n}\n";
}

std::string rewritten(const std::string& body) {
  return with_conditional_back_edges(kernel(body));
}

TEST(BackEdges, GetAConditionThatAlwaysHolds) {
  const std::string out = rewritten("L: // again\n\t@%p bra M;\n\tbra.uni L;\nM:\n");
  EXPECT_NE(out.find("L: // again\n\t@%p bra M;\n\t@%lathe_back bra.uni L; trap;\nM:\n"),
            std::string::npos)
      << out;
  EXPECT_NE(out.find(")\n.maxntid 128\n{\n\t.reg .pred %lathe_back;"), std::string::npos) << out;
  EXPECT_NE(out.find("setp.ne.u32 %lathe_back, %lathe_threads, 0;\n\nL:"), std::string::npos)
      << out;
}

TEST(BackEdges, OtherBranchesStay) {
  for (const char* body :
       {"", "bra M;\nM:\n", "L:\n@%p bra L;\n", "L:\n@!%p bra.uni L;\n",
        "L: // bra L;\nbra M;\nM:\n", "/* L: */ bra L;\nL:\n", ".pragma \"L: bra L;\";\nL:\n",
        "mov.u32 {%r1, %r2}, %r3;\nbra M; M:\n",
        "ld.global.L2::cache_hint.u32 %r1, [%rd1];\nbra cache_hint;\ncache_hint:\n",
        // The same name in a scope that is closed.
        "{ L: @%p bra L; }\nbra L;\nL:\n"})
    EXPECT_EQ(rewritten(body), kernel(body));
}

TEST(BackEdges, ScopesSeeTheLabelsAroundThem) {
  EXPECT_EQ(count(rewritten("L:\n{ .reg .pred q; bra L; }\n"), "@%lathe_back bra L; trap;"), 1u);
  EXPECT_EQ(count(rewritten("{ L: bra L; }\n{ L: bra L; }\n"), "@%lathe_back bra L; trap;"), 2u);
  EXPECT_EQ(count(rewritten("{ L: bra L; }\n{ L: bra L; }\n"), ".reg .pred %lathe_back"), 1u);
}

TEST(BackEdges, EachFunctionHasItsOwn) {
  const std::string function = ".func f()\n{\nL: bra L;\n}\n";
  const std::string out = with_conditional_back_edges(function + kernel("L: bra L;\n") + function);
  EXPECT_EQ(count(out, ".reg .pred %lathe_back;"), 3u);
  EXPECT_EQ(count(out, "@%lathe_back bra L; trap;"), 3u);
}

TEST(BackEdges, TextThatIsNoPtxComesBack) {
  for (const char* text : {"", "}", "{", ";", ":", "\"", "//", "/*", "{L:", "L:bra L", "{{{", "::"})
    EXPECT_EQ(with_conditional_back_edges(text), text);
}

}  // namespace
}  // namespace lathe
