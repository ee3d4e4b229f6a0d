// Holds early_faults() to texts whose faults are known: a rule that finds nothing would let any
// kernel begin early.
#include "tests/codegen/ptx_early.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "lathe/codegen/kernel_table.h"
#include "tests/codegen/kernel_cases.h"

namespace lathe::testing {
namespace {

const KernelKey kSmall{.type = KernelType::sample, .early = true};
const KernelKey kProduct{
    .type = KernelType::matvec, .format = Format::q4_k, .k = 256, .n = 16, .early = true};

std::string faults(const std::string& body, const KernelKey& key = kSmall) {
  const std::string head =
      ".version 8.0\n.target sm_90a\n.visible .entry k(.param .u64 x)\n{\n.reg .pred %p<2>;\n"
      "griddepcontrol.launch_dependents;\n";
  return early_faults(head + body + "ret;\n}\n", key);
}

const std::string kWait = "griddepcontrol.wait;\n";
const std::string kLoad = "ld.global.b32 %r1, [%rd1];\n";

TEST(EarlyFaults, AreNoneWhereAKernelWaitsFirst) {
  EXPECT_EQ(faults(kWait + kLoad + "st.global.b32 [%rd1], %r1;\n"), "");
  EXPECT_EQ(faults("ld.global.nc.b32 %r1, [%rd1];\nst.shared.b32 [%r2], %r1;\n" + kWait), "");
  EXPECT_EQ(faults("L:\n@%p1 bra L;\n" + kWait + "bra.uni M;\nN:\n" + kLoad + "M: @%p1 bra N;\n"),
            "");
}

TEST(EarlyFaults, AreAllWaysAroundTheWait) {
  EXPECT_NE(faults("").find("ends without a wait"), std::string::npos);
  EXPECT_NE(faults(kLoad + kWait).find("ld.global.b32 before the wait"), std::string::npos);
  EXPECT_NE(faults("@!%p1 bra M;\n" + kWait + "M:\n").find("ends without"), std::string::npos);
  EXPECT_NE(faults("@%p1 ret;\n" + kWait).find("ends without"), std::string::npos);
  EXPECT_NE(faults("@%p1 bra M;\nN:\n" + kWait + "ret;\nM:\n" + kLoad + "bra.uni N;\n")
                .find("ld.global.b32 before"),
            std::string::npos);
  for (const char* touch :
       {"st.global.b32 [%rd1], %r1;\n", "red.global.add.u32 [%rd1], %r1;\n",
        "atom.global.add.u32 %r1, [%rd1], 1;\n", "ld.relaxed.gpu.global.u32 %r1, [%rd1];\n",
        "@%p1 st.global.b32 [%rd1], %r1;\n"})
    EXPECT_NE(faults(touch + kWait).find("before the wait"), std::string::npos) << touch;
}

TEST(EarlyFaults, KnowWhoCopiesWeightsFirst) {
  const std::string copy = "cp.async.cg.shared.global [%r1], [%rd1], 16;\n";
  EXPECT_EQ(faults(copy + kWait, kProduct), "");
  EXPECT_NE(faults(copy + kWait).find("cp.async"), std::string::npos);
}

TEST(EarlyFaults, AreOfKernelsThatBeginEarlyOnly) {
  KernelKey late = kSmall;
  late.early = false;
  EXPECT_EQ(faults(kLoad, late), "");
  EXPECT_NE(early_faults(".entry k()\n{\n" + kWait + "ret;\n}\n", kSmall).find("dependents"),
            std::string::npos);
}

// The kernels that tests build, run and look at have some of each sort.
TEST(EarlyCases, AreThereForEachRowThatCanBegin) {
  std::map<KernelType, std::set<int>> stages;
  for (const Family& family : families())
    for (const KernelCase& c : kernel_cases(family))
      if (c.key.early) stages[c.key.type].insert(c.key.stages);
  for (const KernelRow& kind : kernel_table())
    EXPECT_EQ(kind.uses("early"), stages.contains(kind.type)) << kind.name;
  EXPECT_EQ(stages[KernelType::matmul], (std::set{1, 2, 3, 4}));
}

// What may be loaded before the wait: nothing that a kernel of a plan writes.
TEST(EarlyCases, HaveWeightsAndTheChunkForConstants) {
  const std::set<std::string_view> known = {"weights",   "weights_b", "weights_c", "norm",
                                            "post_norm", "bias",      "bias_b",    "bias_c",
                                            "chunk",     "table"};
  for (const Family& family : families())
    for (const KernelCase& c : kernel_cases(family)) {
      if (!c.key.early) continue;
      for (const Param& param : row(c.key.type).params(c.key)) {
        if (!is_constant(c.key, param)) continue;
        EXPECT_TRUE(known.contains(param.name)) << c.key.text() << ": " << param.name;
      }
    }
}

}  // namespace
}  // namespace lathe::testing
