// Holds bench_kernels to its command line, and the program to its streams and exit codes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "bench/common/subprocess.h"
#include "bench/kernels/options.h"
#include "bench/kernels/report.h"
#include "tests/bench/parsed_options.h"

namespace lathe::bench::kernels {
namespace {

using Parsed = ParsedOptions<Options>;

Parsed parse(std::vector<const char*> arguments) {
  return parsed_options<Options>(parse_options, "bench_kernels", std::move(arguments));
}

TEST(KernelOptions, DefaultsAreAllModelsAndPlansByTheFirstRouteThatWorks) {
  const Parsed parsed = parse({});
  ASSERT_FALSE(parsed.status) << parsed.said;
  const Options& options = parsed.options;
  EXPECT_EQ(options.selection.models.size(), 5u);
  EXPECT_EQ(options.selection.stages.size(), 5u);
  EXPECT_FALSE(options.selection.mix.all);
  EXPECT_EQ(options.selection.plan.kv, Format::f16);
  EXPECT_EQ(options.selection.plan.context, 4096 + 512);
  EXPECT_EQ(options.depths, std::vector<int>{4096});
  ASSERT_EQ(options.routes.size(), 1u);
  EXPECT_EQ(options.routes[0].size(), 3u);
  EXPECT_DOUBLE_EQ(options.tolerance, 0.05);
  EXPECT_TRUE(options.device.disk_cache);
}

TEST(KernelOptions, ListsTakeCommas) {
  const Parsed parsed =
      parse({"-m", "qwen3-8b,smollm2-135m", "--plan", "decode", "-f", "q8_0", "-d", "0,128", "--kv",
             "q8_0", "--route", "text,llvm", "--tolerance", "3", "--compare", "x", "--no-cache"});
  ASSERT_FALSE(parsed.status) << parsed.said;
  const Options& options = parsed.options;
  EXPECT_EQ(options.selection.models[1]->name, std::string("smollm2-135m"));
  EXPECT_EQ(options.selection.stages, std::vector{Stage::decode});
  EXPECT_EQ(options.selection.mix.all, Format::q8_0);
  EXPECT_EQ(options.selection.plan.kv, Format::q8_0);
  EXPECT_EQ(options.routes, (std::vector<std::vector<Route>>{{Route::text}, {Route::llvm}}));
  EXPECT_DOUBLE_EQ(options.tolerance, 0.03);
  EXPECT_FALSE(options.device.disk_cache);
  EXPECT_EQ(parse({"--route", "all"}).options.routes.size(), 3u);
}

TEST(KernelOptions, NonsenseIsRefusedWithASentence) {
  struct Case {
    std::vector<const char*> arguments;
    std::vector<const char*> words;
  };
  for (const Case& example : std::vector<Case>{{{"-m", "gpt"}, {"gpt", "smollm2-135m"}},
                                               {{"--plan", "x"}, {"'x'", "decode"}},
                                               {{"-f", "int3"}, {"int3", "q4_k_m"}},
                                               {{"--kv", "int3"}, {"int3"}},
                                               {{"--route", "mlir"}, {"mlir"}},
                                               {{"-r", "0"}, {"--repetitions"}},
                                               {{"-d", "-1"}, {"--depth"}},
                                               {{"--tolerance", "3"}, {"--compare"}},
                                               {{"--list", "--from", "x"}, {"--list"}}}) {
    const Parsed parsed = parse(example.arguments);
    ASSERT_TRUE(parsed.status) << example.arguments[0];
    EXPECT_EQ(*parsed.status, 2);
    EXPECT_TRUE(parsed.said.starts_with("bench_kernels: ")) << parsed.said;
    for (const char* word : example.words)
      EXPECT_NE(parsed.said.find(word), std::string::npos) << word << " in: " << parsed.said;
  }
}

CommandOutput run(const std::string& arguments) {
  // With no device visible, a machine that has one behaves like others.
  auto output = run_command("CUDA_VISIBLE_DEVICES= " + shell_quoted(LATHE_TEST_BENCH_KERNELS) +
                            " " + arguments);
  if (output) return std::move(output).value();
  ADD_FAILURE() << output.error().text();
  return {};
}

TEST(KernelProgram, HelpAndVersionGoToStdout) {
  const CommandOutput help = run("--help");
  EXPECT_EQ(help.status, 0);
  EXPECT_EQ(help.err, "");
  EXPECT_NE(help.out.find("--tolerance"), std::string::npos);
  EXPECT_TRUE(run("--version").out.starts_with("bench_kernels "));
}

TEST(KernelProgram, WithoutAGpuItSaysSo) {
  const CommandOutput output = run("");
  EXPECT_EQ(output.status, 2);
  EXPECT_EQ(output.out, "");
  EXPECT_TRUE(output.err.starts_with("bench_kernels: ")) << output.err;
}

TEST(KernelProgram, TheListNeedsNone) {
  const CommandOutput output = run("--list -m llama-3.1-8b --plan decode --filter '^matvec.*res$'");
  EXPECT_EQ(output.status, 0) << output.err;
  EXPECT_NE(output.out.find("matvec.q6_k.k14336.n4096."), std::string::npos) << output.out;
  EXPECT_EQ(output.out.find("attend"), std::string::npos) << output.out;
  EXPECT_EQ(run("--list --filter nothing_like_it").status, 1);
}

#ifdef LATHE_TEST_BENCH_HOST
TEST(HostProgram, MeasuresKeysAndKnowsItsOptions) {
  const std::string program = shell_quoted(LATHE_TEST_BENCH_HOST);
  const auto measured =
      run_command(program + " --benchmark_filter=key/hash --benchmark_min_time=0.001");
  ASSERT_TRUE(measured);
  EXPECT_EQ(measured->status, 0) << measured->err;
  EXPECT_NE(measured->out.find("key/hash/gemv"), std::string::npos) << measured->out;
  const auto help = run_command(program + " --help");
  ASSERT_TRUE(help);
  EXPECT_NE(help->out.find("--nvrtc"), std::string::npos) << help->out;
  const auto refused = run_command(program + " --frobnicate");
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 2);
}
#endif

class KernelReports : public ::testing::Test {
 protected:
  KernelReports() {
    for (std::size_t i = 0; i < 2; ++i) {
      Row row;
      row.key = "gemv.q4_k.k256.n4";
      row.route = "llvm";
      row.seconds = {(i + 1) * 1e-6};
      EXPECT_TRUE(write_report(path(i), {.device = "a GPU", .read_rate = 1e12, .rows = {row}}));
    }
  }
  ~KernelReports() override {
    for (std::size_t i = 0; i < 3; ++i) std::remove(path(i).c_str());
  }

  static std::string path(std::size_t i) {
    return ::testing::TempDir() + "bench kernels " + std::to_string(::getpid()) + " " +
           std::to_string(i) + ".json";
  }
  static std::string word(std::size_t i) { return shell_quoted(path(i)); }
};

TEST_F(KernelReports, AreToldAgainAndCompared) {
  const CommandOutput same = run("--from " + word(0) + " --compare " + word(0));
  EXPECT_EQ(same.status, 0) << same.err;
  EXPECT_NE(same.out.find("| gemv.q4_k.k256.n4 | llvm  | 1.00 |"), std::string::npos) << same.out;
  EXPECT_NE(same.out.find("0 slower by more than 5 %"), std::string::npos) << same.out;
  const CommandOutput slower = run("--from " + word(1) + " --compare " + word(0));
  EXPECT_EQ(slower.status, 1);
  EXPECT_NE(slower.out.find("2.000 | slower"), std::string::npos) << slower.out;
  EXPECT_EQ(run("--from " + word(1) + " --compare " + word(0) + " --tolerance 150").status, 0);
}

TEST_F(KernelReports, AreWrittenAsTheyWereRead) {
  EXPECT_EQ(run("--csv --from " + word(0) + " --json " + word(2)).status, 0);
  const auto first = read_report(path(0)), copy = read_report(path(2));
  ASSERT_TRUE(first && copy);
  EXPECT_EQ(json(*first), json(*copy));
}

TEST_F(KernelReports, FailuresAreOneSentence) {
  const CommandOutput missing = run("--from /no/report");
  EXPECT_EQ(missing.status, 1);
  EXPECT_EQ(missing.err, "bench_kernels: '/no/report' cannot be read: No such file or directory\n");
  EXPECT_EQ(run("--from " + word(0) + " --json /no/folder/x").status, 1);
  EXPECT_EQ(run("--from " + word(0) + " >/dev/full").status, 1);
}

}  // namespace
}  // namespace lathe::bench::kernels
