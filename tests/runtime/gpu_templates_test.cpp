// Holds the text route to the others on a real GPU: whole models of a q4_k_m and a q8_0 file, by
// templates and the driver's own assembler alone. Skipped with the reason where there is no GPU.
#include <gtest/gtest.h>

#include <vector>

#include "lathe/runtime/session.h"
#include "runtime/platform.h"
#include "tests/runtime/set_variable.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

// The text that greedy decoding adds to a prompt.
std::vector<std::int32_t> continued(const TinyModel& model, const SessionOptions& options) {
  std::vector<std::int32_t> found(96);
  const auto session = Session::open(make_model(model), options);
  EXPECT_TRUE(session) << session.error().text();
  if (!session) return {};
  for (const std::int32_t token : {3, 141, 59, 26, 53, 58, 97, 93, 23, 84})
    EXPECT_TRUE((*session)->step(token));
  const std::int32_t first = (*session)->sampled().value();
  const auto generated = (*session)->generate(first, found);
  EXPECT_TRUE(generated) << generated.error().text();
  return found;
}

TinyModel in_q8_0(TinyModel model) {
  model.weights = Format::q8_0;
  model.exceptions.clear();
  return model;
}

// Hides NVRTC, LLVM and nvJitLink, which leaves a machine with a driver and nothing else.
SessionOptions by_templates(ExecutorKind kind) {
  SessionOptions options;
  options.executor = kind;
  options.plan.context = 160;
  options.disk_cache = false;
  options.routes = {Route::text};
  options.compilers = {.nvrtc = "/nonexistent", .llvm = "/nonexistent"};
  return options;
}

TEST(GpuTemplates, DecodeWhatCompilersDo) {
  if (const auto driver = system_driver(); !driver) GTEST_SKIP() << driver.error().message;
  std::vector<TinyModel> models = {fusible(tiny_qwen2()), fusible(tiny_qwen3()),
                                   fusible(tiny_gemma3())};
  for (TinyModel& model : models) model.vocab = model.context = 160;
  models.push_back(model_shape(3));
  models.push_back(in_q8_0(model_shape(3)));
  for (const TinyModel& model : models) {
    SCOPED_TRACE(model.architecture + " in " + row(model.weights).name);
    SessionOptions compiled = by_templates(ExecutorKind::graph);
    compiled.routes = {};
    compiled.compilers = {};
    compiled.plan.fusion = Fusion::none;
    const std::vector<std::int32_t> expected = continued(model, compiled);
    const SetVariable without("LATHE_NVJITLINK", "off");
    for (const ExecutorKind kind : {ExecutorKind::eager, ExecutorKind::graph})
      EXPECT_EQ(continued(model, by_templates(kind)), expected) << executor_name(kind);
  }
}

}  // namespace
}  // namespace lathe::testing
