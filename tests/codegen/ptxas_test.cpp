// Owns the assembly of every kernel: no spills, no stack, registers that fit the block and stay
// within the budgets recorded in budgets.tsv.
//
// ptxas_test --update records the budgets anew. A route's are compared only where the
// assembler and its compiler are those that stand in the file's first line.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <sstream>

#include "tests/codegen/kernel_cases.h"
#include "tests/codegen/ptx_text.h"
#include "tests/support/compilers.h"

namespace lathe {
namespace {

namespace fs = std::filesystem;

bool updating = false;

// The assembler: where the build says, where the toolkit installs it, or on the path.
std::string find_ptxas() {
  std::vector<std::string> candidates = {LATHE_TEST_PTXAS, "/usr/local/cuda/bin/ptxas"};
  std::istringstream path(std::getenv("PATH") ? std::getenv("PATH") : "");
  for (std::string folder; std::getline(path, folder, ':');)
    candidates.push_back(folder + "/ptxas");
  for (const std::string& candidate : candidates)
    if (!candidate.empty() && access(candidate.c_str(), X_OK) == 0) return candidate;
  return {};
}

struct Output {
  int status = -1;
  std::string text;
};

Output run(const std::string& command) {
  Output out;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (!pipe) return out;
  std::array<char, 4096> buffer;
  while (const std::size_t count = fread(buffer.data(), 1, buffer.size(), pipe))
    out.text.append(buffer.data(), count);
  out.status = pclose(pipe);
  return out;
}

std::string ptxas_version(const std::string& ptxas) {
  const std::string text = run("'" + ptxas + "' --version").text;
  const std::size_t at = text.find("release ");
  return at == std::string::npos ? "ptxas"
                                 : "ptxas " + text.substr(at + 8, text.find(',', at) - at - 8);
}

// The number before `words` in what the assembler prints, -1 without it.
int number_before(const std::string& text, const std::string& words) {
  const std::size_t at = text.find(words);
  if (at == std::string::npos) return -1;
  std::size_t first = at;
  while (first > 0 && std::isdigit(static_cast<unsigned char>(text[first - 1]))) --first;
  return first == at ? -1 : std::stoi(text.substr(first, at - first));
}

int registers_used(const std::string& text) {
  return number_before(text, " registers");
}

// One kernel for one target by one route.
struct Job {
  KernelKey key;
  Route route;
  Target target;
  std::string label() const { return key.text() + " " + route_name(route) + " " + target.name(); }
};

class Assembler {
 public:
  Assembler()
      : ptxas_(find_ptxas()),
        folder_(fs::temp_directory_path() / ("lathe_ptxas_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    if (!ptxas_.empty()) version_ = ptxas_version(ptxas_);
    versions_ = "# " + version_;
    for (Route route : {Route::nvrtc, Route::llvm})
      if (const auto version = testing::compilers().version(route)) versions_ += ", " + *version;
  }
  ~Assembler() { fs::remove_all(folder_); }

  bool found() const { return !ptxas_.empty(); }
  const std::string& version() const { return version_; }
  // Of the assembler and of every compiler that is available: the first line of the budgets.
  const std::string& versions() const { return versions_; }

  Output assemble(const Ptx& ptx, const std::string& name) const {
    const fs::path source = folder_ / (name + ".ptx");
    std::ofstream(source) << ptx.text;
    Output out = run("'" + ptxas_ + "' -v -arch=" + ptx.target.name() + " '" + source.string() +
                     "' -o '" + (folder_ / (name + ".cubin")).string() + "'");
    fs::remove(source);
    return out;
  }

 private:
  std::string ptxas_;
  fs::path folder_;
  std::string version_, versions_;
};

Assembler& assembler() {
  static Assembler shared;
  return shared;
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
    file << assembler().versions() << "\n";
    for (const auto& [name, registers] : used_) file << name << "\t" << registers << "\n";
  }

 private:
  // Whether the recorded registers are those of this assembler and this route's compiler.
  bool comparable(Route route) const {
    const auto recorded = [&](const std::string& version) {
      return versions_.find(version) != std::string::npos;
    };
    if (!recorded(assembler().version())) return false;
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

// What is wrong with this kernel's assembly; empty if nothing. `registers` only at sm_90a.
std::string assemble(const Job& job, int& registers) {
  const Result<Ptx> ptx = emit(job.key, job.target, job.route, testing::compilers());
  if (!ptx && ptx.error().code == Code::unsupported) return {};  // an older LLVM's targets
  if (!ptx) return ptx.error().text();
  const std::string name = job.key.symbol() + "_" + route_name(job.route) + job.target.name();
  const Output out = assembler().assemble(*ptx, name);
  if (out.status != 0) return "ptxas failed: " + out.text;
  std::string wrong;
  for (const char* what : {" bytes stack frame", " bytes spill stores", " bytes spill loads"})
    if (number_before(out.text, what) != 0) wrong += out.text;
  if (number_before(out.text, " bytes lmem") > 0) wrong += out.text;
  registers = registers_used(out.text);
  if (registers <= 0) wrong += "no register count in: " + out.text;
  // A block's registers are handed out per warp, in units of 256.
  const int per_warp = (registers * 32 + 255) / 256 * 256;
  if (per_warp * static_cast<int>(ptx->geometry.threads / 32) > 65536)
    wrong += std::to_string(registers) + " registers do not fit a block";
  return wrong;
}

class PtxasTest : public ::testing::TestWithParam<testing::Family> {
 protected:
  void SetUp() override {
    if (!assembler().found()) GTEST_SKIP() << "no ptxas here";
  }
};

INSTANTIATE_TEST_SUITE_P(Kernels, PtxasTest, ::testing::ValuesIn(testing::families()),
                         [](const auto& info) { return info.param.name(); });

TEST_P(PtxasTest, AssemblesWithoutSpillsForEveryTarget) {
  std::vector<Job> jobs;
  for (const KernelKey& key : testing::representative_keys(GetParam()))
    for (Route route : {Route::nvrtc, Route::llvm, Route::text})
      if (route_covers(key, route) && testing::compilers().available(route))
        for (const Target& target : testing::tested_targets(key)) jobs.push_back({key, route, target});
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
    if (jobs[i].target.name() == "sm_90a" && registers[i] > 0) {
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
