// Owns the tests of the joining of two PTX texts: what of the second comes into the first, and
// where. program_test holds real kernels to it.
#include "codegen/joined_ptx.h"

#include <gtest/gtest.h>

#include <string>

namespace lathe {
namespace {

const std::string kHead = "// a comment; .func in it\n\n.version 8.0\n.target sm_90a\n\n";
const std::string kShared = ".extern .shared .align 16 .b8 shared[];\n";
const std::string kParameters = "\n(\n\t.param .b32 f_param_0\n)\n;\n";
const std::string kBody =
    "(\n\t.param .b32 f_param_0\n)\n{\n\t{ // callseq\n\tcall.uni g, ();\n\t}\n\tret;\n\n}\n";
const std::string kKernel =
    ".visible .entry k(\n\t.param .u64 x\n)\n.maxntid 64, 1, 1\n{\n\tret;\n\n}\n";
const std::string kCaller = ".visible .entry caller()\n{\n\tcall.uni f, ();\n\tret;\n\n}\n";

std::string joined(const std::string& kernel, const std::string& functions) {
  const Result<std::string> out = joined_ptx(kHead + kernel, kHead + functions);
  EXPECT_TRUE(out) << (out ? "" : out.error().text());
  return out ? *out : "";
}

std::string refusal(const std::string& kernel, const std::string& functions) {
  const Result<std::string> out = joined_ptx(kHead + kernel, kHead + functions);
  EXPECT_FALSE(out);
  return out ? "" : out.error().message;
}

TEST(JoinedPtx, HasTheFunctionBehindTheKernelAndNotItsCaller) {
  EXPECT_EQ(joined(".extern .func f" + kParameters + kShared + "\n" + kKernel + "\n",
                   ".func f" + kParameters + kShared + "\n" + kCaller + ".func f" + kBody + "\n"),
            kHead + ".func f" + kParameters + kShared + "\n" + kKernel + ".func f" + kBody + "\n");
}

TEST(JoinedPtx, TakesWhatElseTheFunctionNeeds) {
  const std::string table = ".const .align 1 .b8 table[4] = {1, 2, 3, 4};\n";
  const std::string helper = ".func  (.param .b32 func_retval0) g(\n\t.param .b32 g_param_0\n)\n";
  const std::string out =
      joined(".extern .func f" + kParameters + kKernel,
             helper + ";\n" + table + kCaller + ".func f" + kBody + helper + "{\n\tret;\n}\n");
  EXPECT_EQ(out, kHead + ".func f" + kParameters + helper + ";\n" + table + kKernel + ".func f" +
                     kBody + helper + "{\n\tret;\n}\n\n");
}

TEST(JoinedPtx, HasWhatBothDefineOnce) {
  const std::string table = ".const .align 1 .b8 table[4] = {1, 2, 3, 4};\n";
  const std::string helper = ".func  (.param .b32 func_retval0) g(\n\t.param .b32 g_param_0\n)\n";
  const std::string ours = helper + ";\n" + table + kKernel + helper + "{\n\tret;\n}\n";
  EXPECT_EQ(
      joined(".extern .func f" + kParameters + ours,
             helper + ";\n" + table + kCaller + ".func f" + kBody + helper + "{\n\tret;\n}\n"),
      kHead + ".func f" + kParameters + ours + ".func f" + kBody + "\n");
}

TEST(JoinedPtx, IsRefusedWithTheNameAtFault) {
  EXPECT_EQ(refusal(".extern .func f" + kParameters + kKernel, kCaller + ".func h" + kBody),
            "A kernel calls f, which no part of it defines.");
  EXPECT_EQ(refusal(".extern .func f" + kParameters + kShared + kKernel,
                    ".extern .shared .align 8 .b8 shared[];\n" + kCaller + ".func f" + kBody),
            "Two parts of a kernel define shared differently.");
  const std::string helper = ".func g(\n\t.param .b32 g_param_0\n)\n{\n\tret;\n}\n";
  std::string other = helper;
  other.replace(other.find("ret"), 3, "exit");
  EXPECT_EQ(refusal(".extern .func f" + kParameters + kKernel + helper,
                    kCaller + ".func f" + kBody + other),
            "Two parts of a kernel define g differently.");
  // A text that was cut off.
  EXPECT_EQ(refusal(".extern .func f" + kParameters + kKernel, kCaller + ".func f\n{\n"),
            "A kernel calls f, which no part of it defines.");
}

}  // namespace
}  // namespace lathe
