// Owns the tests of persistent kernels as code: which plans make one, its source, and what NVRTC
// and the assembler make of it. What it computes is the GPU tests' concern.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "codegen/routes.h"
#include "lathe/codegen/program.h"
#include "lathe/plan/plan.h"
#include "tests/codegen/ptx_lint.h"
#include "tests/codegen/ptxas.h"
#include "tests/plan/tiny_models.h"
#include "tests/support/compilers.h"

namespace lathe {
namespace {

using testing::compilers;
using testing::fusible;
using testing::TinyModel;

std::vector<KernelKey> steps_of(const TinyModel& model, Format kv = Format::f16) {
  const testing::GgufImage image = testing::tiny_model(model);
  const auto file = GgufFile::from_bytes(image.bytes, "tiny").value();
  PlanOptions options;
  options.fusion = Fusion::full;
  options.kv = kv;
  const Result<Plan> plan = build_plan(*file, options);
  EXPECT_TRUE(plan) << (plan ? "" : plan.error().text());
  std::vector<KernelKey> keys;
  if (!plan) return keys;
  for (const Step& step : plan->steps) {
    if (step.key.type == KernelType::top_k) break;
    keys.push_back(step.key);
  }
  return keys;
}

Program program_of(const TinyModel& model, Format kv = Format::f16) {
  const Result<Program> program = make_program(steps_of(model, kv));
  EXPECT_TRUE(program) << (program ? "" : program.error().text());
  return program ? *program : Program{};
}

std::vector<TinyModel> all_families() {
  return {testing::tiny_llama(), testing::tiny_qwen2(), testing::tiny_qwen3(),
          testing::tiny_gemma3()};
}

std::string refusal(const std::vector<KernelKey>& steps) {
  const Result<Program> program = make_program(steps);
  EXPECT_FALSE(program);
  if (program) return {};
  EXPECT_EQ(program.error().code, Code::not_eligible);
  return program.error().message;
}

TEST(Program, CountsStepsAndMatrices) {
  for (const TinyModel& family : all_families()) {
    const TinyModel model = fusible(family);
    const Program program = program_of(model);
    EXPECT_EQ(program.steps, 5 * model.layers + 2) << model.architecture;
    EXPECT_EQ(program.entries, 7 * model.layers + 1);
    // With a window there are two kinds of attention.
    EXPECT_EQ(program.attends.size(), model.window > 0 ? 2u : 1u);
    EXPECT_EQ(program.blocks, 132);
    const Geometry g = program.geometry();
    EXPECT_EQ(g.grid_x, 132u);
    EXPECT_EQ(g.threads, static_cast<unsigned>(program.warps * 32));
    EXPECT_LE(g.shared_bytes, 227u * 1024);
    EXPECT_GE(program.stages, 2);
  }
}

TEST(Program, TextNamesEverythingThatTheCodeDependsOn) {
  const TinyModel model = fusible(testing::tiny_llama());
  const std::string text = program_of(model).text();
  EXPECT_EQ(program_of(model).text(), text);
  TinyModel other = model;
  other.epsilon = 1e-3;
  EXPECT_NE(program_of(other).text(), text);
  other = model;
  other.vocab += 16;
  EXPECT_NE(program_of(other).text(), text);
  other = model;
  other.layers += 1;
  EXPECT_NE(program_of(other).text(), text);
  EXPECT_NE(program_of(model, Format::f32).text(), text);
}

TEST(Program, OtherStepsAreRefusedWithAReason) {
  const std::vector<KernelKey> steps = steps_of(fusible(testing::tiny_llama()));
  EXPECT_NE(refusal({}).find("embedding"), std::string::npos);
  EXPECT_NE(refusal({steps.begin() + 1, steps.end()}).find("embedding"), std::string::npos);
  EXPECT_NE(refusal({steps[0], steps[2]}).find("no matrix"), std::string::npos);
  std::vector<KernelKey> with_norm = steps;
  with_norm.push_back(*parse_key("rms_norm.f32.k64.n1.w4"));
  EXPECT_NE(refusal(with_norm).find("rms_norm"), std::string::npos);
  // A value for each thread, once.
  std::vector<KernelKey> wide = steps;
  wide[0] = *parse_key("embed.f32.k1048576.n1");
  EXPECT_NE(refusal(wide).find("fewer threads than the embedding"), std::string::npos);
}

TEST(Program, TakesTheStepsUpToTheLastMatrix) {
  std::vector<KernelKey> steps = steps_of(fusible(testing::tiny_llama()), Format::f16);
  const std::size_t count = steps.size();
  EXPECT_EQ(persistent_steps(steps).size(), count);
  steps.push_back(*parse_key("rms_norm.f32.k64.n1.w4"));
  EXPECT_EQ(persistent_steps(steps).size(), count);
  EXPECT_TRUE(persistent_steps(std::span(steps).first(1)).empty());
}

TEST(Program, TargetsWithoutBulkCopiesAreRefused) {
  const Program program = program_of(fusible(testing::tiny_llama()));
  for (const char* name : {"sm_80", "sm_89"}) {
    const Result<Ptx> ptx = emit_program(program, *parse_target(name), compilers());
    ASSERT_FALSE(ptx);
    EXPECT_EQ(ptx.error().code, Code::not_eligible);
    EXPECT_NE(ptx.error().message.find(std::string(name) + " has no bulk copies"),
              std::string::npos)
        << ptx.error().text();
  }
}

// With a window there are two kinds of attention.
TEST(Program, HasTheTextOfItsWholeSource) {
  if (const auto there = compilers().available(Route::nvrtc); !there)
    GTEST_SKIP() << there.error().message;
  const Target target = *parse_target("sm_90a");
  for (const TinyModel& model : {testing::tiny_llama(), testing::tiny_gemma3()}) {
    const Program program = program_of(fusible(model));
    const Result<Ptx> parts = emit_program(program, target, compilers());
    ASSERT_TRUE(parts) << parts.error().text();
    const Result<const Nvrtc*> nvrtc = load_nvrtc(compilers().state());
    ASSERT_TRUE(nvrtc);
    const Result<std::string> whole = nvrtc_compile(*cuda_source(program), "all", target, **nvrtc);
    ASSERT_TRUE(whole) << whole.error().text();
    EXPECT_TRUE(parts->text.ends_with(*whole)) << model.architecture;
  }
}

// Plans have 8 warps; a caller's own may have more.
Program with_warps(const TinyModel& model, Format kv, int warps) {
  std::vector<KernelKey> steps = steps_of(model, kv);
  for (KernelKey& key : steps)
    if (key.type != KernelType::embed) key.warps = warps;
  const Result<Program> program = make_program(steps);
  EXPECT_TRUE(program) << (program ? "" : program.error().text());
  return program ? *program : Program{};
}

struct CompiledCase {
  const char* name;
  TinyModel model;
  Format kv;
  int spills = 0;  // bytes allowed with 8 warps

  friend void PrintTo(const CompiledCase& c, std::ostream* out) { *out << c.name; }
};

class ProgramCode : public ::testing::TestWithParam<CompiledCase> {};

// With 16 warps a thread has 128 registers: what attention and several formats' products do not fit
// goes to the stack. The most that any of these programs has, rounded up: lower it when they do.
// With 8 warps there are twice as many, and all but the products of four formats do.
int most_spills(const CompiledCase& c, int warps) {
  return warps == 16 ? 512 + c.spills : c.spills;
}

TEST_P(ProgramCode, CompilesAndAssemblesWithFewSpills) {
  if (const auto there = compilers().available(Route::nvrtc); !there)
    GTEST_SKIP() << there.error().message;
  if (!testing::ptxas().found()) GTEST_SKIP() << "no ptxas here";
  const CompiledCase& c = GetParam();
  for (int warps : {8, 16}) {
    SCOPED_TRACE(std::to_string(warps) + " warps");
    const Program program = with_warps(c.model, c.kv, warps);
    const Result<Ptx> ptx = emit_program(program, *parse_target("sm_90a"), compilers());
    ASSERT_TRUE(ptx) << ptx.error().text();
    EXPECT_EQ(ptx->entry, "lathe_persistent");
    EXPECT_EQ(ptx->geometry.threads, static_cast<unsigned>(warps * 32));
    EXPECT_NE(ptx->text.find(".entry lathe_persistent("), std::string::npos);
    EXPECT_NE(ptx->text.find("// " + program.text()), std::string::npos);
    const testing::PtxLaunch launch = {
        {8, 8, 8, 8, 8, 8, 8, 8, 4, 4}, ptx->geometry.threads, ptx->geometry.shared_bytes};
    EXPECT_EQ(testing::ptx_faults(ptx->text, launch), "");
    const testing::PtxasOutput out = testing::ptxas().assemble(*ptx, c.name);
    ASSERT_EQ(out.status, 0) << out.text;
    EXPECT_LE(out.spills(), most_spills(c, warps)) << out.text;
    EXPECT_LE(out.registers(), std::min(255, 65536 / (warps * 32))) << out.text;
    RecordProperty("registers_w" + std::to_string(warps), out.registers());
    RecordProperty("spills_w" + std::to_string(warps), out.spills());
  }
}

TinyModel mixed() {
  TinyModel model = fusible(testing::tiny_llama(), Format::q4_k);
  model.head_dim = model.rotary = 128;
  model.exceptions = {{"blk.0.attn_v.weight", Format::q6_k},
                      {"blk.1.ffn_down.weight", Format::q6_k},
                      {"output.weight", Format::q6_k}};
  return model;
}

// As mixed(), of the formats of a model file.
TinyModel of_mix(std::size_t number) {
  const testing::FileMix mix = testing::file_mixes().at(number);
  TinyModel model = mixed();
  model.weights = mix.weights;
  model.exceptions = mix.exceptions;
  return model;
}

INSTANTIATE_TEST_SUITE_P(
    Programs, ProgramCode,
    ::testing::Values(CompiledCase{"llama", fusible(testing::tiny_llama()), Format::f16},
                      CompiledCase{"llama_q4_k_m", mixed(), Format::f16},
                      CompiledCase{"llama_q2_k", of_mix(0), Format::f16, 256},
                      CompiledCase{"llama_iq4_xs", of_mix(2), Format::f16},
                      CompiledCase{"llama_mxfp4", of_mix(4), Format::f16},
                      CompiledCase{"qwen2", fusible(testing::tiny_qwen2()), Format::f32},
                      CompiledCase{"qwen3", fusible(testing::tiny_qwen3()), Format::q8_0},
                      CompiledCase{"gemma3", fusible(testing::tiny_gemma3()), Format::f16}),
    [](const auto& info) { return std::string(info.param.name); });

// While weights stream, what was spilled takes thousands of clocks to come back
// (docs/performance.md): at the shapes that people run nothing may be.
struct KnownModel {
  const char* name;
  std::vector<const char*> keys;

  friend void PrintTo(const KnownModel& m, std::ostream* out) { *out << m.name; }
};

class ProgramOfKnownModel : public ::testing::TestWithParam<KnownModel> {};

TEST_P(ProgramOfKnownModel, SpillsNothing) {
  if (const auto there = compilers().available(Route::nvrtc); !there)
    GTEST_SKIP() << there.error().message;
  if (!testing::ptxas().found()) GTEST_SKIP() << "no ptxas here";
  std::vector<KernelKey> steps;
  for (const char* text : GetParam().keys) {
    const Result<KernelKey> key = parse_key(text);
    ASSERT_TRUE(key) << key.error().text();
    steps.push_back(*key);
  }
  const Result<Program> program = make_program(steps);
  ASSERT_TRUE(program) << program.error().text();
  const Result<Ptx> ptx = emit_program(*program, *parse_target("sm_90a"), compilers());
  ASSERT_TRUE(ptx) << ptx.error().text();
  const testing::PtxasOutput out = testing::ptxas().assemble(*ptx, GetParam().name);
  ASSERT_EQ(out.status, 0) << out.text;
  EXPECT_EQ(out.spills(), 0) << out.text;
}

INSTANTIATE_TEST_SUITE_P(
    Models, ProgramOfKnownModel,
    ::testing::Values(
        KnownModel{"llama_8b_q4_k_m",
                   {"embed.q4_k.k4096.n128256.w4",
                    "matvec.q4_k.k4096.n4096.nb1024.nc1024.b_q4_k.c_q6_k.w8.bl132.st7.eps1e-5.norm",
                    "attend.f16.h32.kvh8.d128.rot128.w8.s16.scale88388346e-9",
                    "matvec.q4_k.k4096.n4096.w8.bl132.st8.res",
                    "matvec.q4_k.k4096.n14336.nb14336.b_q4_k.w8.bl132.st8.eps1e-5.gated.norm",
                    "matvec.q6_k.k14336.n4096.w8.bl132.st6.res",
                    "matvec.q6_k.k4096.n128256.w8.bl132.st7.eps1e-5.norm"}},
        KnownModel{"llama_1b_q4_k_m",
                   {"embed.q6_k.k2048.n128256.w4.tiles",
                    "matvec.q4_k.k2048.n2048.nb512.nc512.b_q4_k.c_q6_k.w8.bl132.st7.eps1e-5.norm",
                    "attend.f16.h32.kvh8.d64.rot64.w8.s16.scale125e-3",
                    "matvec.q4_k.k2048.n2048.w8.bl132.st8.res",
                    "matvec.q4_k.k2048.n8192.nb8192.b_q4_k.w8.bl132.st8.eps1e-5.gated.norm",
                    "matvec.q6_k.k8192.n2048.w8.bl132.st6.res",
                    "matvec.q6_k.k2048.n128256.w8.bl132.st7.eps1e-5.norm"}},
        KnownModel{"qwen_7b_q4_k_m_by_the_matrix_units",
                   {"embed.q4_k.k3584.n152064.w4",
                    "matvec.q4_k.k3584.n3584.nb512.nc512.b_q4_k.c_q6_k.w8.bl132.st7.eps1e-6.norm",
                    "attend.f16.h28.kvh4.d128.rot128.w8.s33.matrix.scale88388346e-9.halves",
                    "matvec.q4_k.k3584.n3584.w8.bl132.st8.res",
                    "matvec.q4_k.k3584.n18944.nb18944.b_q4_k.w8.bl132.st8.eps1e-6.gated.norm",
                    "matvec.q6_k.k18944.n3584.w8.bl132.st6.res",
                    "matvec.q6_k.k3584.n152064.w8.bl132.st7.eps1e-6.norm"}},
        KnownModel{"llama_8b_q4_k_m_by_the_matrix_units",
                   {"embed.q4_k.k4096.n128256.w4",
                    "matvec.q4_k.k4096.n4096.nb1024.nc1024.b_q4_k.c_q6_k.w8.bl132.st7.eps1e-5.norm",
                    "attend.f16.h32.kvh8.d128.rot128.w8.s16.matrix.scale88388346e-9",
                    "matvec.q4_k.k4096.n4096.w8.bl132.st8.res",
                    "matvec.q4_k.k4096.n14336.nb14336.b_q4_k.w8.bl132.st8.eps1e-5.gated.norm",
                    "matvec.q6_k.k14336.n4096.w8.bl132.st6.res",
                    "matvec.q6_k.k4096.n128256.w8.bl132.st7.eps1e-5.norm"}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lathe
