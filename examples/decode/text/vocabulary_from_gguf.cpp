// Owns the names of the metadata that describe a vocabulary, and their defaults.
#include "examples/decode/text/vocabulary_from_gguf.h"

#include <limits>
#include <optional>

#include "examples/decode/text/pretokenizer.h"

namespace lathe::text {

namespace {

// Reads the metadata of one file and keeps the first error.
class Reader {
 public:
  explicit Reader(const GgufFile& file) : file_(file) {}

  const std::optional<Error>& error() const { return error_; }

  std::string string(const char* key, std::string absent) {
    return optional(key, std::move(absent), [&] { return file_.string(key); });
  }

  bool boolean(const char* key, bool absent) {
    return optional(key, absent, [&] { return file_.boolean(key); });
  }

  int32_t id(const char* key) {
    const int64_t value = optional(key, int64_t{-1}, [&] { return file_.integer(key); });
    // Some files write an absent token as the greatest unsigned number.
    if (value < 0 || value == std::numeric_limits<uint32_t>::max()) {
      return -1;
    }
    if (value > std::numeric_limits<int32_t>::max()) {
      fail(std::string(key) + " is " + std::to_string(value) + ", which is no token id");
      return -1;
    }
    return static_cast<int32_t>(value);
  }

  std::vector<std::string> strings(const char* key) {
    return array(key, file_.strings(key), "strings");
  }

  std::vector<float> scores(const char* key) {
    if (const std::vector<int64_t>* whole = file_.integers(key)) {
      return std::vector<float>(whole->begin(), whole->end());
    }
    const std::vector<double> values = array(key, file_.reals(key), "numbers");
    return std::vector<float>(values.begin(), values.end());
  }

  std::vector<int32_t> types(const char* key) {
    const std::vector<int64_t> values = array(key, file_.integers(key), "integers");
    return std::vector<int32_t>(values.begin(), values.end());
  }

 private:
  template <typename T, typename Read>
  T optional(const char* key, T absent, const Read& read) {
    if (file_.value(key) == nullptr) {
      return absent;
    }
    Result<T> found = read();
    if (found) {
      return std::move(found).value();
    }
    if (!error_) {
      error_ = std::move(found).error();
    }
    return absent;
  }

  template <typename T>
  std::vector<T> array(const char* key, const std::vector<T>* found, const char* what) {
    if (found == nullptr) {
      if (file_.value(key) != nullptr) {
        fail(std::string(key) + " isn't an array of " + what);
      }
      return {};
    }
    return *found;
  }

  void fail(std::string message) {
    if (!error_) {
      error_ = Error{Code::corrupt_file, std::move(message), {{"path", file_.path()}}};
    }
  }

  const GgufFile& file_;
  std::optional<Error> error_;
};

}  // namespace

Result<Vocabulary> vocabulary_from_gguf(const GgufFile& file) {
  Reader read(file);
  Vocabulary vocabulary;
  vocabulary.architecture = read.string("general.architecture", "");
  vocabulary.model = read.string("tokenizer.ggml.model", "no_vocab");
  vocabulary.pre = read.string("tokenizer.ggml.pre", "");
  vocabulary.tokens = read.strings("tokenizer.ggml.tokens");
  vocabulary.scores = read.scores("tokenizer.ggml.scores");
  vocabulary.types = read.types("tokenizer.ggml.token_type");
  vocabulary.merges = read.strings("tokenizer.ggml.merges");
  vocabulary.bos = read.id("tokenizer.ggml.bos_token_id");
  vocabulary.eos = read.id("tokenizer.ggml.eos_token_id");
  vocabulary.eot = read.id("tokenizer.ggml.eot_token_id");
  vocabulary.unknown = read.id("tokenizer.ggml.unknown_token_id");
  vocabulary.padding = read.id("tokenizer.ggml.padding_token_id");
  const bool sentence_piece = vocabulary.model == "llama";
  vocabulary.add_bos = read.boolean("tokenizer.ggml.add_bos_token",
                                    sentence_piece || pretokenizer_adds_bos(vocabulary.pre));
  vocabulary.add_eos = read.boolean("tokenizer.ggml.add_eos_token", false);
  vocabulary.add_space_prefix = read.boolean("tokenizer.ggml.add_space_prefix", sentence_piece);
  vocabulary.chat_template = read.string("tokenizer.chat_template", "");
  if (read.error()) {
    return *read.error();
  }
  return vocabulary;
}

}  // namespace lathe::text
