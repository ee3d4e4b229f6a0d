// Holds the command line to its lists, defaults and refusals.
#include "bench/decode/options.h"

#include <gtest/gtest.h>

#include "tests/bench/parsed_options.h"

namespace lathe::bench {
namespace {

using Parsed = ParsedOptions<Options>;

Parsed parse(std::vector<const char*> arguments) {
  return parsed_options<Options>(parse_options, "bench_decode", std::move(arguments));
}

using Ints = std::vector<int>;

TEST(Options, DefaultsMeasure128TokensOnTheAutomaticExecutor) {
  const Parsed parsed = parse({"-m", "a.gguf"});
  ASSERT_FALSE(parsed.status) << parsed.said;
  const Options& options = parsed.options;
  EXPECT_EQ(options.gens, Ints{128});
  EXPECT_EQ(options.prompts, Ints{});
  EXPECT_EQ(options.depths, Ints{0});
  EXPECT_EQ(options.executors, std::vector{ExecutorKind::automatic});
  EXPECT_EQ(options.kv, std::vector{Format::f16});
  EXPECT_EQ(options.repetitions, 5);
  EXPECT_EQ(options.rounds, 1);
  EXPECT_EQ(options.context, 0);
  EXPECT_EQ(options.output, Output::markdown);
  EXPECT_TRUE(options.session.disk_cache);
}

TEST(Options, ListsTakeCommasAndRepetition) {
  const Parsed parsed =
      parse({"-m", "a.gguf", "-m", "b,c.gguf", "-n", "64,128", "-n", "256", "-p", "0,512", "-d",
             "0,4096", "--executor", "cpu,eager", "--kv", "f32,f16", "--route", "text,llvm"});
  ASSERT_FALSE(parsed.status) << parsed.said;
  const Options& options = parsed.options;
  EXPECT_EQ(options.models, (std::vector<std::string>{"a.gguf", "b,c.gguf"}));
  EXPECT_EQ(options.gens, (Ints{64, 128, 256}));
  EXPECT_EQ(options.prompts, (Ints{0, 512}));
  EXPECT_EQ(options.depths, (Ints{0, 4096}));
  EXPECT_EQ(options.executors, (std::vector{ExecutorKind::cpu, ExecutorKind::eager}));
  EXPECT_EQ(options.kv, (std::vector{Format::f32, Format::f16}));
  EXPECT_EQ(options.session.routes, (std::vector{Route::text, Route::llvm}));
}

TEST(Options, APeerTakesTwoTurnsUnlessToldOtherwise) {
  EXPECT_EQ(parse({"-m", "a", "--peer", "x {gen}"}).options.rounds, 2);
  EXPECT_EQ(parse({"-m", "a", "--peer", "x {gen}", "--rounds", "4"}).options.rounds, 4);
}

TEST(Options, FormsOfOutput) {
  EXPECT_EQ(parse({"-m", "a", "--output", "csv"}).options.output, Output::csv);
  EXPECT_EQ(parse({"-m", "a", "--output", "json"}).options.output, Output::json);
  EXPECT_EQ(parse({"-m", "a", "--output", "md"}).options.output, Output::markdown);
}

TEST(Options, EveryExecutorOfTheLibraryIsKnown) {
  for (ExecutorKind kind : {ExecutorKind::eager, ExecutorKind::graph, ExecutorKind::cpu})
    EXPECT_FALSE(parse({"-m", "a", "--executor", executor_name(kind)}).status);
}

TEST(Options, NonsenseIsRefusedWithASentence) {
  struct Case {
    std::vector<const char*> arguments;
    std::vector<const char*> words;
  };
  for (const Case& example : std::vector<Case>{
           {{}, {"--model"}},
           {{"-m", "a", "b"}, {"b"}},
           {{"-m", "a", "-n", "0"}, {"nothing to measure"}},
           {{"-m", "a", "-n", "0", "-p", "0"}, {"nothing to measure"}},
           {{"-m", "a", "-n", "-1"}, {"--gen", "-1"}},
           {{"-m", "a", "-n", "8,x"}, {"--gen", "x"}},
           {{"-m", "a", "-d", "99999999999"}, {"--depth", "99999999999"}},
           {{"-m", "a", "--executor", "gpu"}, {"--executor", "'gpu'", "graph", "cpu"}},
           {{"-m", "a", "--kv", "f16,int3"}, {"--kv", "int3", "f32"}},
           {{"-m", "a", "--route", "mlir"}, {"--route", "mlir"}},
           {{"-m", "a", "-r", "0"}, {"--repetitions"}},
           {{"-m", "a", "-d", "64", "--context", "100"}, {"--context", "100", "192"}},
           {{"-m", "a", "--rounds", "3"}, {"--rounds", "--peer"}},
           {{"-m", "a", "--output", "xml"}, {"--output", "xml"}},
           {{"-m", "a", "--no-cache", "--cache-dir", "x"}, {"--cache-dir"}},
           {{"-m", "a", "--threads", "0"}, {"--threads"}}}) {
    const Parsed parsed = parse(example.arguments);
    ASSERT_TRUE(parsed.status) << ::testing::PrintToString(example.arguments);
    EXPECT_EQ(*parsed.status, 2);
    EXPECT_TRUE(parsed.said.starts_with("bench_decode: ")) << parsed.said;
    EXPECT_NE(parsed.said.find("Try 'bench_decode --help'."), std::string::npos) << parsed.said;
    for (const char* word : example.words)
      EXPECT_NE(parsed.said.find(word), std::string::npos) << word << " in: " << parsed.said;
  }
}

}  // namespace
}  // namespace lathe::bench
