// Holds the talk with a peer to what llama-bench prints, and to clear words about anything else.
#include "bench/decode/peer.h"

#include <gtest/gtest.h>

namespace lathe::bench {
namespace {

constexpr Test kGeneration{0, 128, 4096};

// The form of llama-bench -o json, cut to the fields of interest and some others.
constexpr const char* kArray = R"([
  {
    "build_commit": "abc",
    "model_filename": "a [1].gguf",
    "n_prompt": 512,
    "n_gen": 0,
    "n_depth": 4096,
    "avg_ts": 9000.5,
    "samples_ts": [ 9000.0, 9001.0 ]
  },
  {
    "n_prompt": 0,
    "n_gen": 128,
    "n_depth": 4096,
    "avg_ts": 251.5,
    "stddev_ts": 0.5,
    "samples_ns": [ 510000000, 508000000 ],
    "samples_ts": [ 251.0, 252.0 ]
  }
]
)";

std::vector<double> rates(const std::string& text, const Test& test) {
  Result<std::vector<double>> found = parse_peer_output(text, test);
  if (found) return std::move(found).value();
  ADD_FAILURE() << found.error().text();
  return {};
}

std::string refusal(const std::string& text, const Test& test = kGeneration) {
  const Result<std::vector<double>> found = parse_peer_output(text, test);
  return found ? "accepted" : found.error().text();
}

using Rates = std::vector<double>;

TEST(Peer, CommandHasTheTestAndTheModelAsOneWord) {
  EXPECT_EQ(peer_command("b -m {model} -n {gen} -p {prompt} -d {depth} -r {reps} {other}",
                         "it's {gen}.gguf", kGeneration, 5),
            "b -m 'it'\\''s {gen}.gguf' -n 128 -p 0 -d 4096 -r 5 {other}");
}

TEST(Peer, ArrayGivesTheSamplesOfTheTest) {
  EXPECT_EQ(rates(kArray, kGeneration), (Rates{251, 252}));
  EXPECT_EQ(rates(kArray, {512, 0, 4096}), (Rates{9000, 9001}));
}

TEST(Peer, WordsAroundTheArrayDoNotMatter) {
  EXPECT_EQ(rates("[info] loading\n" + std::string(kArray) + "done\n", kGeneration),
            (Rates{251, 252}));
}

TEST(Peer, JsonLinesAreRecordsToo) {
  EXPECT_EQ(rates("loading\n"
                  R"({"n_prompt": 0, "n_gen": 64, "n_depth": 0, "avg_ts": 10})"
                  "\n"
                  R"({"n_prompt": 0, "n_gen": 128, "n_depth": 4096, "avg_ts": 20.5})"
                  "\n",
                  kGeneration),
            (Rates{20.5}));
}

TEST(Peer, AnyProgramMayPrintALineForEachRepetition) {
  EXPECT_EQ(rates("model loaded\ntokens/s: 12.5\n  tokens/s:   13\r\nbye", kGeneration),
            (Rates{12.5, 13}));
}

TEST(Peer, OutputWithoutSpeedIsRefusedWithWhatWasExpected) {
  for (const char* text : {"", "hello\n", "[]", "{}x", "[1, 2", "tokens per second: 5\n"}) {
    const std::string said = refusal(text);
    EXPECT_NE(said.find("no speed"), std::string::npos) << text << ": " << said;
    EXPECT_NE(said.find("llama-bench -o json"), std::string::npos) << said;
    EXPECT_NE(said.find("tokens/s: NUMBER"), std::string::npos) << said;
  }
}

TEST(Peer, RecordsOfOtherTestsAreNamed) {
  const std::string said = refusal(kArray, {0, 64, 0});
  EXPECT_NE(said.find("no record of tg64, but pp512 @ d4096, tg128 @ d4096"), std::string::npos)
      << said;
}

TEST(Peer, SpeedsThatAreNoneAreRefused) {
  const auto record = [](const std::string& fields) {
    return R"([{"n_gen": 128, "n_depth": 4096)" + fields + "}]";
  };
  EXPECT_NE(refusal(record("")).find("neither samples_ts nor avg_ts"), std::string::npos);
  for (const char* fields : {R"(, "samples_ts": [1, "x"])", R"(, "samples_ts": [0])",
                             R"(, "avg_ts": -1)", R"(, "samples_ts": [null])"})
    EXPECT_NE(refusal(record(fields)).find("no number above 0"), std::string::npos) << fields;
  for (const char* line : {"tokens/s: fast", "tokens/s:", "tokens/s: 0", "tokens/s: 5x",
                           "tokens/s: nan", "tokens/s: inf"})
    EXPECT_NE(refusal(line).find("no number above 0"), std::string::npos) << line;
}

TEST(Peer, FailureShowsStatusAndLastWords) {
  const auto failed = run_peer("echo almost; echo 'out of memory' >&2; exit 9", kGeneration, {});
  ASSERT_FALSE(failed);
  const std::string said = failed.error().text();
  EXPECT_NE(said.find("the peer ended with status 9 on tg128 @ d4096"), std::string::npos) << said;
  EXPECT_NE(said.find("stdout ends: almost"), std::string::npos) << said;
  EXPECT_NE(said.find("stderr ends: out of memory"), std::string::npos) << said;
}

}  // namespace
}  // namespace lathe::bench
