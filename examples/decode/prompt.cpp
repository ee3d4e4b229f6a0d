// Owns the choice of a conversation's form, and the checks of the tokens before anything is fed.
#include "examples/decode/prompt.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "examples/decode/text/chat.h"
#include "examples/decode/text/vocabulary_from_gguf.h"

namespace lathe::decode {

namespace {

Result<std::string> read_stdin() {
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, stdin))
    text.append(buffer, count);
  if (std::ferror(stdin))
    return Error{Code::io, fmt::format("cannot read stdin: {}", std::strerror(errno)), {}};
  // The line break that ends a file is not part of what was asked.
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::vector<text::Message> conversation(const Options& options, std::string prompt) {
  std::vector<text::Message> messages;
  if (!options.system.empty()) messages.push_back({"system", options.system});
  messages.push_back({"user", std::move(prompt)});
  return messages;
}

// Nothing if the file names no vocabulary at all, as files made for measurements do.
Result<std::unique_ptr<const text::Tokenizer>> make_tokenizer(const text::Vocabulary& vocabulary,
                                                              const GgufFile& file) {
  if (vocabulary.model == "no_vocab") return std::unique_ptr<const text::Tokenizer>();
  std::string problem;
  auto tokenizer = text::Tokenizer::create(vocabulary, &problem);
  if (tokenizer) return tokenizer;
  return Error{Code::unsupported, problem, {}}
      .with("file", file.path())
      .with("hint", "--tokens takes and prints token ids and needs no tokenizer");
}

Result<std::vector<std::int32_t>> encode(const text::Tokenizer& tokenizer,
                                         const text::Vocabulary& vocabulary,
                                         const Options& options) {
  const text::ChatTemplate chat = text::detect(vocabulary);
  const bool raw = options.raw || chat.format == text::ChatFormat::raw;
  if (raw && !options.system.empty())
    return Error{Code::unsupported, "the model has no form of conversation for --system", {}};
  std::string prompt = options.prompt;
  if (prompt == "-") {
    LATHE_ASSIGN(prompt, read_stdin());
  }
  if (raw) return tokenizer.encode(prompt, false, true);
  return tokenizer.encode(text::format(chat, conversation(options, std::move(prompt))), true, true);
}

}  // namespace

Result<Prompt> make_prompt(const GgufFile& file, const Options& options) {
  Prompt prompt;
  // Ids need no tokenizer, so one that cannot be used must not stand in their way.
  Result<text::Vocabulary> vocabulary = text::vocabulary_from_gguf(file);
  if (options.token_mode()) {
    prompt.ids = options.tokens;
    if (!vocabulary) return prompt;
    if (auto tokenizer = make_tokenizer(*vocabulary, file)) {
      prompt.tokenizer = std::move(tokenizer).value();
    }
    return prompt;
  }
  if (!vocabulary) return std::move(vocabulary).error();
  LATHE_ASSIGN(prompt.tokenizer, make_tokenizer(*vocabulary, file));
  if (!prompt.tokenizer)
    return Error{Code::unsupported,
                 fmt::format("'{}' has no tokenizer, so it cannot take a prompt", file.path()),
                 {}}
        .with("hint", "give token ids instead: --tokens 1,2,3");
  LATHE_ASSIGN(prompt.ids, encode(*prompt.tokenizer, *vocabulary, options));
  if (prompt.ids.empty())
    return Error{
        Code::invalid_argument, "the prompt is empty, and the model has no first token", {}};
  return prompt;
}

Result<void> check_prompt(const Prompt& prompt, const Plan& plan) {
  for (std::int32_t id : prompt.ids) {
    if (id >= plan.spec.vocab)
      return Error{
          Code::out_of_range,
          fmt::format("token {} is outside the model's vocabulary of {}", id, plan.spec.vocab),
          {}};
  }
  const int context = plan.options.context;
  if (prompt.ids.size() <= static_cast<std::size_t>(context)) return {};
  return Error{
      Code::out_of_range,
      fmt::format("the prompt has {} tokens, but the context holds {}", prompt.ids.size(), context),
      {}}
      .with("hint", fmt::format("--context raises it, up to the model's {}", plan.spec.context));
}

}  // namespace lathe::decode
