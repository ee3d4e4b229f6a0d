// Owns what both encodings share: special tokens inside text, the first token, and the tokens that
// end a text.
#include "examples/decode/text/tokenizer.h"

#include <array>

namespace lathe::text {

namespace {

// Names that mean the end and nothing else, whatever type a converter gave the token.
constexpr std::array<std::string_view, 15> end_names = {"<|im_end|>",
                                                        "<|eot_id|>",
                                                        "<|eom_id|>",
                                                        "<|end|>",
                                                        "<|endoftext|>",
                                                        "<|end_of_text|>",
                                                        "<end_of_turn>",
                                                        "<end_of_utterance>",
                                                        "<turn|>",
                                                        "<|return|>",
                                                        "<|call|>",
                                                        "<|calls|>",
                                                        "<|flush|>",
                                                        "<\xEF\xBD\x9C"
                                                        "end\xE2\x96\x81"
                                                        "of\xE2\x96\x81"
                                                        "sentence\xEF\xBD\x9C>",
                                                        "[e~["};

// Names that also occur as ordinary text ("</s>" strikes text out in HTML, and Gemma has it as a
// token), so the token must be a control token. The last ones part files from each other, when a
// model writes one file after the other.
constexpr std::array<std::string_view, 13> end_names_if_control = {
    "</s>",       "<eos>",       "<EOT>",       "_<EOT>",       "[EOT]",
    "[EOS]",      "<|fim_pad|>", "<fim_pad>",   "<|fim_repo|>", "<|repo_name|>",
    "<reponame>", "<fim-repo>",  "<|file_sep|>"};

std::string range_error(const char* name, int32_t id, size_t size) {
  return std::string("the ") + name + " token is " + std::to_string(id) +
         " but the vocabulary has " + std::to_string(size) + " tokens";
}

// Empty if the vocabulary holds together.
std::string check(const Vocabulary& vocabulary) {
  const size_t size = vocabulary.tokens.size();
  if (vocabulary.model == "no_vocab") {
    return "the model file has no vocabulary";
  }
  if (vocabulary.model != "gpt2" && vocabulary.model != "llama") {
    return "the vocabulary is of the kind '" + vocabulary.model +
           "'; only 'gpt2' and 'llama' can be used";
  }
  if (size == 0 || size > INT32_MAX) {
    return "the vocabulary has " + std::to_string(size) + " tokens";
  }
  if (!vocabulary.types.empty() && vocabulary.types.size() != size) {
    return "the vocabulary has " + std::to_string(size) + " tokens but types for " +
           std::to_string(vocabulary.types.size());
  }
  const struct {
    const char* name;
    int32_t id;
  } ids[] = {{"begin-of-text", vocabulary.bos},
             {"end-of-text", vocabulary.eos},
             {"end-of-turn", vocabulary.eot},
             {"unknown", vocabulary.unknown},
             {"padding", vocabulary.padding}};
  for (const auto& [name, id] : ids) {
    if (id < -1 || id >= static_cast<int64_t>(size)) {
      return range_error(name, id, size);
    }
  }
  return "";
}

}  // namespace

Tokenizer::Tokenizer(const Vocabulary& vocabulary)
    : table_(vocabulary),
      bos_(vocabulary.add_bos ? vocabulary.bos : -1),
      add_space_prefix_(vocabulary.add_space_prefix && vocabulary.model == "llama") {}

std::unique_ptr<const Tokenizer> Tokenizer::create(const Vocabulary& vocabulary,
                                                   std::string* error) {
  *error = check(vocabulary);
  if (!error->empty()) {
    return nullptr;
  }
  std::unique_ptr<Tokenizer> made(new Tokenizer(vocabulary));
  made->encoder_ = vocabulary.model == "gpt2" ? make_bpe(made->table_, vocabulary, error)
                                              : make_spm(made->table_, vocabulary, error);
  if (made->encoder_ == nullptr) {
    return nullptr;
  }
  made->find_stops(vocabulary);
  return made;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool parse_special,
                                       bool add_bos) const {
  std::vector<int32_t> ids;
  if (add_bos && bos_ >= 0) {
    ids.push_back(bos_);
  }
  bool after_special = true;
  for (size_t at = 0; at < text.size();) {
    const SpecialMatch special = table_.find_special(text, at, parse_special);
    const size_t end = special.length > 0 ? special.at : text.size();
    if (end > at) {
      encoder_->encode(text.substr(at, end - at), after_special, &ids);
      after_special = false;
    }
    if (special.length > 0) {
      ids.push_back(special.id);
      after_special = true;
    }
    at = end + special.length;
  }
  return ids;
}

std::string Tokenizer::piece(int32_t id, bool show_special) const {
  if (!table_.contains(id)) {
    return "";
  }
  if (is_hidden(id)) {
    return show_special ? table_.text(id) : "";
  }
  // A user-defined token is matched as it is written, so it is written so, too.
  return table_.type(id) == TokenType::user_defined ? table_.text(id) : encoder_->bytes(id);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool show_special) const {
  std::string out;
  bool strip_space = add_space_prefix_;
  for (const int32_t id : ids) {
    const std::string bytes = piece(id, show_special);
    if (strip_space && table_.contains(id) && !is_hidden(id)) {
      strip_space = false;
      out.append(bytes, bytes.starts_with(' ') ? 1 : 0);
    } else {
      out.append(bytes);
    }
  }
  return out;
}

bool Tokenizer::is_hidden(int32_t id) const {
  const TokenType type = table_.type(id);
  return type == TokenType::control || type == TokenType::unknown || type == TokenType::unused;
}

void Tokenizer::find_stops(const Vocabulary& vocabulary) {
  for (const int32_t id : {vocabulary.eos, vocabulary.eot}) {
    if (id >= 0) {
      stops_.insert(id);
    }
  }
  for (const std::string_view name : end_names) {
    if (const int32_t id = table_.find(name); id >= 0) {
      stops_.insert(id);
    }
  }
  for (const std::string_view name : end_names_if_control) {
    if (const int32_t id = table_.find(name); id >= 0 && table_.type(id) == TokenType::control) {
      stops_.insert(id);
    }
  }
  // Where messages have channels and end with <|return|> or <|call|>, <|end|> only parts them.
  const bool ends_otherwise = (table_.find("<|return|>") >= 0 && table_.find("<|call|>") >= 0) ||
                              (table_.find("<|flush|>") >= 0 && table_.find("<|calls|>") >= 0);
  if (ends_otherwise) {
    stops_.erase(table_.find("<|end|>"));
  }
}

}  // namespace lathe::text
