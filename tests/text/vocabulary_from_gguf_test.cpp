// Owns the tests of reading a vocabulary out of a GGUF file, on files made in memory.
#include "examples/decode/text/vocabulary_from_gguf.h"

#include <gtest/gtest.h>

#include <span>
#include <utility>

namespace lathe::text {
namespace {

// Writes a file without tensors.
class Writer {
 public:
  enum Type : uint32_t { u32 = 4, i32 = 5, f32 = 6, boolean = 7, string = 8, array = 9 };

  void add(const char* key, const std::string& value) {
    begin(key, string);
    put_string(value);
  }
  void add(const char* key, const char* value) { add(key, std::string(value)); }
  void add(const char* key, uint32_t value) {
    begin(key, u32);
    put(value);
  }
  void add(const char* key, bool value) {
    begin(key, boolean);
    put(static_cast<uint8_t>(value));
  }
  void add(const char* key, const std::vector<std::string>& values) {
    begin_array(key, string, values.size());
    for (const std::string& value : values) {
      put_string(value);
    }
  }
  void add(const char* key, const std::vector<float>& values) {
    begin_array(key, f32, values.size());
    for (const float value : values) {
      put(value);
    }
  }
  void add(const char* key, const std::vector<int32_t>& values) {
    begin_array(key, i32, values.size());
    for (const int32_t value : values) {
      put(value);
    }
  }

  Result<Vocabulary> read() {
    const std::string entries = std::exchange(bytes_, "GGUF");
    put(uint32_t{3});
    put(uint64_t{0});
    put(count_);
    bytes_ += entries;
    bytes_.resize((bytes_.size() + 31) / 32 * 32);
    auto file = GgufFile::from_bytes(std::as_bytes(std::span(bytes_)), "made.gguf");
    if (!file) {
      return file.error();
    }
    return vocabulary_from_gguf(**file);
  }

 private:
  template <typename T>
  void put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void put_string(const std::string& value) {
    put(uint64_t{value.size()});
    bytes_ += value;
  }
  void begin(const char* key, Type type) {
    ++count_;
    put_string(key);
    put(static_cast<uint32_t>(type));
  }
  void begin_array(const char* key, Type type, size_t size) {
    begin(key, array);
    put(static_cast<uint32_t>(type));
    put(uint64_t{size});
  }

  std::string bytes_;
  uint64_t count_ = 0;
};

TEST(VocabularyFromGguf, ReadsEverything) {
  Writer file;
  file.add("general.architecture", "llama");
  file.add("tokenizer.ggml.model", "gpt2");
  file.add("tokenizer.ggml.pre", "smollm");
  file.add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab"});
  file.add("tokenizer.ggml.scores", std::vector<float>{0.5f, -1.0f, -1000.0f});
  file.add("tokenizer.ggml.token_type", std::vector<int32_t>{1, 3, 1});
  file.add("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  file.add("tokenizer.ggml.bos_token_id", 0u);
  file.add("tokenizer.ggml.eos_token_id", 1u);
  file.add("tokenizer.ggml.eot_token_id", 2u);
  file.add("tokenizer.ggml.unknown_token_id", 0u);
  file.add("tokenizer.ggml.padding_token_id", UINT32_MAX);
  file.add("tokenizer.ggml.add_bos_token", true);
  file.add("tokenizer.ggml.add_eos_token", true);
  file.add("tokenizer.ggml.add_space_prefix", true);
  file.add("tokenizer.chat_template", "{{ x }}");
  const auto read = file.read();
  ASSERT_TRUE(read) << read.error().text();
  const Vocabulary& v = *read;
  EXPECT_EQ(v.architecture, "llama");
  EXPECT_EQ(v.model, "gpt2");
  EXPECT_EQ(v.pre, "smollm");
  EXPECT_EQ(v.tokens, (std::vector<std::string>{"a", "b", "ab"}));
  EXPECT_EQ(v.scores, (std::vector<float>{0.5f, -1.0f, -1000.0f}));
  EXPECT_EQ(v.types, (std::vector<int32_t>{1, 3, 1}));
  EXPECT_EQ(v.merges, (std::vector<std::string>{"a b"}));
  EXPECT_EQ(v.bos, 0);
  EXPECT_EQ(v.eos, 1);
  EXPECT_EQ(v.eot, 2);
  EXPECT_EQ(v.unknown, 0);
  EXPECT_EQ(v.padding, -1);
  EXPECT_TRUE(v.add_bos && v.add_eos && v.add_space_prefix);
  EXPECT_EQ(v.chat_template, "{{ x }}");
}

TEST(VocabularyFromGguf, FillsInWhatIsLeftOut) {
  const auto none = Writer().read();
  ASSERT_TRUE(none) << none.error().text();
  EXPECT_EQ(none->model, "no_vocab");
  EXPECT_EQ(none->bos, -1);
  EXPECT_FALSE(none->add_bos);

  Writer sentence_piece;
  sentence_piece.add("tokenizer.ggml.model", "llama");
  const auto spm = sentence_piece.read();
  ASSERT_TRUE(spm) << spm.error().text();
  EXPECT_TRUE(spm->add_bos && spm->add_space_prefix);

  Writer llama3;
  llama3.add("tokenizer.ggml.model", "gpt2");
  llama3.add("tokenizer.ggml.pre", "llama-bpe");
  const auto bpe = llama3.read();
  ASSERT_TRUE(bpe) << bpe.error().text();
  EXPECT_TRUE(bpe->add_bos);
  EXPECT_FALSE(bpe->add_space_prefix);
}

TEST(VocabularyFromGguf, TakesWholeNumbersForScores) {
  Writer file;
  file.add("tokenizer.ggml.scores", std::vector<int32_t>{-1, -2});
  const auto read = file.read();
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->scores, (std::vector<float>{-1.0f, -2.0f}));
}

TEST(VocabularyFromGguf, ErrorsNameTheKey) {
  const auto error = [](const char* key, auto value) {
    Writer file;
    file.add(key, value);
    const auto read = file.read();
    EXPECT_FALSE(read);
    return read ? "" : read.error().message;
  };
  for (const auto& message :
       {error("tokenizer.ggml.tokens", "text"),
        error("tokenizer.ggml.tokens", std::vector<float>{1}), error("tokenizer.ggml.model", 7u),
        error("tokenizer.ggml.token_type", std::vector<float>{1}),
        error("tokenizer.ggml.scores", std::vector<std::string>{"1"}),
        error("tokenizer.ggml.bos_token_id", "1"), error("tokenizer.ggml.eos_token_id", 1u << 31),
        error("tokenizer.ggml.add_bos_token", "yes"), error("tokenizer.chat_template", 1u)}) {
    EXPECT_NE(message.find("tokenizer."), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace lathe::text
