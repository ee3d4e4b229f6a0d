// Owns the assembly of every kernel: no spills, no stack but where it says why, registers that fit
// the block and stay within the budgets recorded in budgets.tsv. Every kernel is assembled for
// sm_90a, and for each other target one of every op and one of every format: all of them when
// LATHE_TEST_EVERY_TARGET is set.
//
// ptxas_test --update records the budgets anew. A route's are compared only where the
// assembler and its compiler are those that stand in the file's first line.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <future>
#include <map>
#include <set>
#include <sstream>

#include "tests/codegen/kernel_cases.h"
#include "tests/codegen/ptx_text.h"
#include "tests/codegen/ptxas.h"
#include "tests/support/compilers.h"

namespace lathe {
namespace {

bool updating = false;

// One kernel for one target by one route.
struct Job {
  KernelKey key;
  Route route;
  Target target;
  std::string label() const { return key.text() + " " + route_name(route) + " " + target.name(); }
};

bool is_budgeted(const Target& target) {
  return target.name() == "sm_90a";
}

// Registers per "key route" at sm_90a.
class Budgets {
 public:
  Budgets() {
    std::ifstream file(kPath);
    std::getline(file, versions_);
    for (std::string line; std::getline(file, line);) {
      std::istringstream in(line);
      std::string key, route;
      int registers = 0;
      if (in >> key >> route >> registers) recorded_[key + "\t" + route] = registers;
    }
  }

  // Empty, or by how much the budget is exceeded.
  std::string check(const Job& job, int registers) {
    const std::string name = job.key.text() + "\t" + route_name(job.route);
    used_[name] = registers;
    if (updating || !comparable(job.route)) return {};
    const auto it = recorded_.find(name);
    if (it == recorded_.end()) return "no budget is recorded; run ptxas_test --update";
    if (registers <= it->second * 105 / 100) return {};
    return std::to_string(registers) + " registers, the budget is " + std::to_string(it->second);
  }

  void write() const {
    std::ofstream file(kPath);
    file << testing::ptxas().versions() << "\n";
    for (const auto& [name, registers] : used_) file << name << "\t" << registers << "\n";
  }

 private:
  // Whether the recorded registers are those of this assembler and this route's compiler.
  bool comparable(Route route) const {
    const auto recorded = [&](const std::string& version) {
      return versions_.find(version) != std::string::npos;
    };
    if (!recorded(testing::ptxas().version())) return false;
    const auto compiler = testing::compilers().version(route);
    return route == Route::text || (compiler && recorded(*compiler));
  }

  static constexpr const char* kPath = LATHE_CODEGEN_DATA "/budgets.tsv";
  std::string versions_;
  std::map<std::string, int> recorded_, used_;
};

Budgets& budgets() {
  static Budgets shared;
  return shared;
}

// attend with 16 warps, as a persistent kernel wants it, has 128 registers a thread: a value or two
// of the query may go to the stack and come back, once for each KV head.
int spills_allowed(const KernelKey& key) {
  return key.type == KernelType::attend && key.warps == 16 ? 64 : 0;
}

// What is wrong with this kernel's assembly; empty if nothing. `registers` only at sm_90a.
std::string assemble(const Job& job, int& registers) {
  const Result<Ptx> ptx = emit(job.key, job.target, job.route, testing::compilers());
  if (!ptx && ptx.error().code == Code::unsupported) return {};  // an older LLVM's targets
  if (!ptx) return ptx.error().text();
  if (job.route == Route::nvrtc)
    if (const std::string rules = testing::broken_rules(*ptx, job.key); !rules.empty())
      return rules;
  const std::string name = job.key.symbol() + "_" + route_name(job.route) + job.target.name();
  const testing::PtxasOutput out = testing::ptxas().assemble(*ptx, name);
  if (out.status != 0) return "ptxas failed: " + out.text;
  std::string wrong;
  if (out.spills() > spills_allowed(job.key)) wrong += out.text;
  registers = out.registers();
  if (registers <= 0) wrong += "no register count in: " + out.text;
  // A block's registers are handed out per warp, in units of 256.
  const int per_warp = (registers * 32 + 255) / 256 * 256;
  if (per_warp * static_cast<int>(ptx->geometry.threads / 32) > 65536)
    wrong += std::to_string(registers) + " registers do not fit a block";
  return wrong;
}

struct KernelTargets {
  KernelKey key;
  std::vector<Target> targets;
};

// Every kernel, for sm_90a and for the targets that its op or its format has not had so far.
std::vector<KernelTargets> kernels_and_targets() {
  std::vector<KernelTargets> out;
  std::set<std::string> had;
  for (const testing::Family& family : testing::families())
    for (const KernelKey& key : testing::representative_keys(family)) {
      std::vector<Target> targets = testing::tested_targets(key);
      std::erase_if(targets, [&](const Target& target) {
        const bool of_op = had.insert(row(key.type).name + target.name()).second;
        const bool of_format = had.insert(row(key.format).name + target.name()).second;
        return !of_op && !of_format && !is_budgeted(target) &&
               !std::getenv("LATHE_TEST_EVERY_TARGET");
      });
      out.push_back({key, targets});
    }
  return out;
}

class PtxasTest : public ::testing::TestWithParam<testing::Family> {
 protected:
  void SetUp() override {
    if (!testing::ptxas().found()) GTEST_SKIP() << "no ptxas here";
  }
};

INSTANTIATE_TEST_SUITE_P(Kernels, PtxasTest, ::testing::ValuesIn(testing::families()),
                         [](const auto& info) { return info.param.name(); });

TEST_P(PtxasTest, AssemblesWithoutSpills) {
  std::vector<Job> jobs;
  for (const auto& [key, targets] : kernels_and_targets())
    for (Route route : {Route::nvrtc, Route::llvm, Route::text})
      if (key.type == GetParam().type && key.format == GetParam().format &&
          route_covers(key, route) && testing::compilers().available(route))
        for (const Target& target : targets) jobs.push_back({key, route, target});
  ASSERT_FALSE(jobs.empty()) << "no route is available";
  std::vector<int> registers(jobs.size());
  std::vector<std::string> wrong(jobs.size());
  const auto work = [&](std::size_t first) {
    for (std::size_t i = first; i < jobs.size(); i += 2) wrong[i] = assemble(jobs[i], registers[i]);
  };
  auto other = std::async(std::launch::async, work, std::size_t{1});
  work(0);
  other.get();
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(wrong[i], "") << jobs[i].label();
    if (is_budgeted(jobs[i].target) && registers[i] > 0) {
      EXPECT_EQ(budgets().check(jobs[i], registers[i]), "") << jobs[i].label();
    }
  }
}

}  // namespace
}  // namespace lathe

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  lathe::updating = argc > 1 && std::string(argv[1]) == "--update";
  const int status = RUN_ALL_TESTS();
  if (lathe::updating) lathe::budgets().write();
  return status;
}
