// Owns the comparison with other tokenizers' ids on whole vocabularies, as recorded by
// record_tokens.py.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "examples/decode/text/chat.h"
#include "examples/decode/text/tokenizer.h"
#include "examples/decode/text/utf8_stream.h"
#include "examples/decode/text/vocabulary_from_gguf.h"
#include "tests/text/hex.h"

namespace lathe::text {
namespace {

struct RecordedModel {
  const char* name;  // of the tests and of the table
  const char* file;
};

void PrintTo(const RecordedModel& model, std::ostream* out) {
  *out << model.name;
}

constexpr RecordedModel smollm2 = {"smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"};
constexpr RecordedModel gemma3 = {"gemma3", "gemma-3-270m-q4_k_m.gguf"};

// Why the model's tests can't run; empty if they can.
std::string missing(const RecordedModel& model) {
  const char* folder = std::getenv("LATHE_TEST_MODELS");
  if (folder == nullptr) {
    return "LATHE_TEST_MODELS doesn't name a folder of model files";
  }
  const std::filesystem::path path = std::filesystem::path(folder) / model.file;
  return std::filesystem::exists(path) ? "" : path.string() + " doesn't exist";
}

// Read once for all tests: reading is most of the time they take.
const Vocabulary& vocabulary_of(const RecordedModel& model) {
  static std::map<std::string, Vocabulary> read;
  const auto [at, is_new] = read.try_emplace(model.file);
  if (is_new) {
    const std::string path = std::string(std::getenv("LATHE_TEST_MODELS")) + "/" + model.file;
    auto file = GgufFile::open(path);
    EXPECT_TRUE(file) << (file ? "" : file.error().text());
    if (file) {
      auto vocabulary = vocabulary_from_gguf(**file);
      EXPECT_TRUE(vocabulary) << (vocabulary ? "" : vocabulary.error().text());
      if (vocabulary) {
        at->second = std::move(vocabulary).value();
      }
    }
  }
  return at->second;
}

class RecordedTokens : public testing::TestWithParam<RecordedModel> {
 protected:
  void SetUp() override {
    if (const std::string reason = missing(GetParam()); !reason.empty()) {
      GTEST_SKIP() << reason;
    }
    std::string error;
    tokenizer_ = Tokenizer::create(vocabulary_of(GetParam()), &error);
    ASSERT_NE(tokenizer_, nullptr) << error;
    std::ifstream file(std::string(LATHE_TEXT_DATA "/") + GetParam().name + ".json");
    entries_ = nlohmann::json::parse(file).at("entries");
    ASSERT_GE(entries_.size(), 220u);
  }

  std::unique_ptr<const Tokenizer> tokenizer_;
  nlohmann::json entries_;
};

using Ids = std::vector<int32_t>;

TEST_P(RecordedTokens, EncodeAsRecorded) {
  for (const nlohmann::json& entry : entries_) {
    const std::string text = from_hex(entry.at("text"));
    EXPECT_EQ(tokenizer_->encode(text, true, false), entry.at("ids").get<Ids>()) << text;
  }
}

TEST_P(RecordedTokens, EncodeWithoutSpecialTokensAsRecorded) {
  for (const nlohmann::json& entry : entries_) {
    const std::string text = from_hex(entry.at("text"));
    const nlohmann::json& ids = entry.at(entry.contains("plain_ids") ? "plain_ids" : "ids");
    EXPECT_EQ(tokenizer_->encode(text, false, false), ids.get<Ids>()) << text;
  }
}

TEST_P(RecordedTokens, DecodeAsRecorded) {
  for (const nlohmann::json& entry : entries_) {
    const Ids ids = entry.at("ids");
    const std::string want = from_hex(entry.at(entry.contains("decoded") ? "decoded" : "text"));
    EXPECT_EQ(tokenizer_->decode(ids, true), want);
  }
}

TEST_P(RecordedTokens, StreamsAsTheTextItWas) {
  for (const nlohmann::json& entry : entries_) {
    const std::string want = from_hex(entry.at(entry.contains("decoded") ? "decoded" : "text"));
    Utf8Stream whole;
    std::string expected = whole.push(want);
    expected += whole.flush();
    Utf8Stream stream;
    std::string out;
    for (const int32_t id : entry.at("ids").get<Ids>()) {
      out += stream.push(tokenizer_->piece(id, true));
    }
    out += stream.flush();
    EXPECT_EQ(out, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RecordedTokens, testing::Values(smollm2, gemma3),
                         [](const testing::TestParamInfo<RecordedModel>& info) {
                           return std::string(info.param.name);
                         });

TEST(RecordedModels, SmolLm2SaysHowItChats) {
  if (const std::string reason = missing(smollm2); !reason.empty()) {
    GTEST_SKIP() << reason;
  }
  const Vocabulary& vocabulary = vocabulary_of(smollm2);
  const ChatTemplate chat = detect(vocabulary);
  const Message message = {"user", "Hi"};
  EXPECT_EQ(format(chat, {&message, 1}),
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
            "Face<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  std::string error;
  const auto tokenizer = Tokenizer::create(vocabulary, &error);
  ASSERT_NE(tokenizer, nullptr) << error;
  EXPECT_TRUE(tokenizer->is_stop(tokenizer->find("<|im_end|>")));
  EXPECT_TRUE(tokenizer->is_stop(tokenizer->find("<|endoftext|>")));
  EXPECT_FALSE(tokenizer->is_stop(tokenizer->find("<|im_start|>")));
  // This model doesn't begin with a first token, though it has one.
  EXPECT_EQ(tokenizer->encode("<|im_end|>", true, true).size(), 1u);
}

TEST(RecordedModels, Gemma3BeginsAndEndsAsItShould) {
  if (const std::string reason = missing(gemma3); !reason.empty()) {
    GTEST_SKIP() << reason;
  }
  const Vocabulary& vocabulary = vocabulary_of(gemma3);
  EXPECT_EQ(vocabulary.chat_template, "");  // a base model
  EXPECT_EQ(detect(vocabulary).format, ChatFormat::raw);
  std::string error;
  const auto tokenizer = Tokenizer::create(vocabulary, &error);
  ASSERT_NE(tokenizer, nullptr) << error;
  EXPECT_EQ(tokenizer->encode("", true, true), (Ids{tokenizer->find("<bos>")}));
  EXPECT_TRUE(tokenizer->is_stop(tokenizer->find("<eos>")));
  EXPECT_TRUE(tokenizer->is_stop(tokenizer->find("<end_of_turn>")));
  EXPECT_FALSE(tokenizer->is_stop(tokenizer->find("</s>")));
}

}  // namespace
}  // namespace lathe::text
