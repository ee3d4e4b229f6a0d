// Owns the bound on a cold start: the processor time in which compilers and the assembler make all
// kernels of a model's plan anew. Processor time, since a machine that tests may be busy; on
// several cores the kernels are built at the same time.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <set>
#include <string>

#include "lathe/codegen/program.h"
#include "lathe/plan/plan.h"
#include "tests/codegen/ptxas.h"
#include "tests/plan/tiny_models.h"
#include "tests/support/compilers.h"

namespace lathe {
namespace {

using testing::compilers;

// Ten times what they take; engines whose first token came after half an hour took 20 s a kernel.
constexpr double kSecondsPerKernel = 6, kSecondsPerProgram = 30;
// Plans have some 30, whatever their number of layers.
constexpr std::size_t kMostKernels = 64;

double processor_seconds() {
  double sum = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used{};
    getrusage(who, &used);
    for (const timeval& time : {used.ru_utime, used.ru_stime})
      sum += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  }
  return sum;
}

void assemble(const Result<Ptx>& ptx) {
  ASSERT_TRUE(ptx) << ptx.error().text();
  if (testing::ptxas().found()) {
    ASSERT_EQ(testing::ptxas().assemble(*ptx, "cold").status, 0);
  }
}

class ColdStart : public ::testing::TestWithParam<Route> {};

TEST_P(ColdStart, OfEveryPlanIsBounded) {
  if (const auto there = compilers().available(GetParam()); !there)
    GTEST_SKIP() << there.error().message;
  const Target target = *parse_target("sm_90a");
  for (const testing::TinyModel& family : {testing::tiny_qwen3(), testing::tiny_gemma3()}) {
    for (const Fusion fusion : {Fusion::full, Fusion::none}) {
      testing::TinyModel model = testing::fusible(family);
      model.layers *= 2;
      const testing::GgufImage image = testing::tiny_model(model);
      const auto file = GgufFile::from_bytes(image.bytes, "tiny").value();
      PlanOptions options;
      options.fusion = fusion;
      const Result<Plan> plan = build_plan(*file, options);
      ASSERT_TRUE(plan) << plan.error().text();
      std::set<std::string> built;
      const double before = processor_seconds();
      for (const Step& step : plan->steps)
        if (built.insert(step.key.text()).second)
          assemble(emit(step.key, target, GetParam(), compilers()));
      const double seconds = processor_seconds() - before;
      const std::string name = model.architecture + (fusion == Fusion::full ? "_full" : "_none");
      RecordProperty(name, std::to_string(seconds) + " s, " + std::to_string(built.size()));
      EXPECT_LT(seconds, kSecondsPerKernel * static_cast<double>(built.size())) << name;
      EXPECT_LE(built.size(), kMostKernels) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Routes, ColdStart, ::testing::Values(Route::nvrtc, Route::llvm),
                         [](const auto& info) { return route_name(info.param); });

TEST(ColdStartOfPrograms, IsBounded) {
  if (const auto there = compilers().available(Route::nvrtc); !there)
    GTEST_SKIP() << there.error().message;
  const testing::GgufImage image = testing::tiny_model(testing::fusible(testing::tiny_llama()));
  const auto file = GgufFile::from_bytes(image.bytes, "tiny").value();
  PlanOptions options;
  options.fusion = Fusion::full;
  const Result<Plan> plan = build_plan(*file, options);
  ASSERT_TRUE(plan) << plan.error().text();
  std::vector<KernelKey> keys;
  for (const Step& step : plan->steps) keys.push_back(step.key);
  const Result<Program> program = make_program(persistent_steps(keys));
  ASSERT_TRUE(program) << program.error().text();
  const double before = processor_seconds();
  assemble(emit_program(*program, *parse_target("sm_90a"), compilers()));
  const double seconds = processor_seconds() - before;
  RecordProperty("seconds", std::to_string(seconds));
  EXPECT_LT(seconds, kSecondsPerProgram);
}

}  // namespace
}  // namespace lathe
