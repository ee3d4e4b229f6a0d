// Owns the tests of the pre-tokenizers, against cuts recorded from another implementation.
#include "examples/decode/text/pretokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/text/hex.h"

namespace lathe::text {
namespace {

std::vector<std::string_view> split(const Pretokenizer& pretokenizer, std::string_view text) {
  std::vector<std::string_view> pieces;
  pretokenizer.split(text, &pieces);
  return pieces;
}

std::unique_ptr<const Pretokenizer> make(std::string_view name) {
  std::string error;
  auto made = Pretokenizer::create(name, &error);
  EXPECT_NE(made, nullptr) << error;
  return made;
}

TEST(Pretokenizer, CutsAsRecorded) {
  std::ifstream file(LATHE_TEXT_DATA "/pieces.json");
  const nlohmann::json table = nlohmann::json::parse(file);
  ASSERT_GE(table.at("entries").size(), 220u);
  for (const char* name : {"gpt-2", "llama-bpe", "qwen2", "tekken", "gpt-4o", "deepseek-v3"}) {
    const auto pretokenizer = make(name);
    for (const nlohmann::json& entry : table.at("entries")) {
      const std::string text = from_hex(entry.at("text"));
      std::vector<size_t> lengths;
      for (const std::string_view piece : split(*pretokenizer, text)) {
        lengths.push_back(piece.size());
      }
      EXPECT_EQ(lengths, entry.at(name).get<std::vector<size_t>>()) << name << ": " << text;
    }
  }
}

TEST(Pretokenizer, EveryRowCompilesAndLosesNothing) {
  const std::string text =
      "It's 1234 \xE4\xBD\xA0\xE5\xA5\xBD\xE3\x80\x82  \t\r\n\r\n\xC3\xA9t\xC3\xA9! "
      "\xFF\xED\xA0\x80 HTTPServer (a), b\xE1\xA0\x8E";
  for (const char* name :
       {"default",   "",           "gpt-2",      "smollm",       "starcoder",      "refact",
        "command-r", "llama-bpe",  "dbrx",       "glm4",         "qwen2",          "qwen35",
        "falcon",    "tekken",     "gpt-4o",     "deepseek-llm", "deepseek-coder", "deepseek-v3",
        "minicpm5",  "seed-coder", "bailingmoe", "exaone-moe",   "bloom",          "viking"}) {
    const auto pretokenizer = make(name);
    std::string joined;
    for (const std::string_view piece : split(*pretokenizer, text)) {
      EXPECT_FALSE(piece.empty());
      joined += piece;
    }
    EXPECT_EQ(joined, text) << name;
  }
}

TEST(Pretokenizer, StagesCutOnlyWhatTheStageBeforeLeft) {
  const auto pretokenizer = make("smollm");
  EXPECT_EQ(split(*pretokenizer, "ab12 3"),
            (std::vector<std::string_view>{"ab", "1", "2", " ", "3"}));
}

TEST(Pretokenizer, DamagedBytesAreTheirOwnPieces) {
  const auto pretokenizer = make("gpt-2");
  EXPECT_EQ(split(*pretokenizer,
                  "ab\xFF"
                  "cd \xE4\xBD"),
            (std::vector<std::string_view>{"ab", "\xFF", "cd", " ", "\xE4\xBD"}));
}

TEST(Pretokenizer, LongRunsAreCutWhole) {
  const auto pretokenizer = make("llama-bpe");
  EXPECT_EQ(split(*pretokenizer, std::string(1 << 20, 'a')).size(), 1u);
  EXPECT_EQ(split(*pretokenizer, std::string(1 << 20, '\n')).size(), 1u);
  // A run with a word after it leaves that word its space.
  EXPECT_EQ(split(*pretokenizer, std::string(1 << 16, ' ') + "a").size(), 2u);
}

TEST(Pretokenizer, UnknownNamesAreErrors) {
  std::string error;
  EXPECT_EQ(Pretokenizer::create("nonesuch", &error), nullptr);
  EXPECT_NE(error.find("'nonesuch'"), std::string::npos);
}

TEST(Pretokenizer, KnowsWhoseModelsBeginWithTheFirstToken) {
  EXPECT_TRUE(pretokenizer_adds_bos("llama-bpe"));
  EXPECT_FALSE(pretokenizer_adds_bos("qwen2"));
  EXPECT_FALSE(pretokenizer_adds_bos("nonesuch"));
}

}  // namespace
}  // namespace lathe::text
