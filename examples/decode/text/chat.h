// Owns the text forms in which models expect a conversation.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "examples/decode/text/vocabulary.h"

namespace lathe::text {

enum class ChatFormat {
  raw,             // the contents alone, in order: for base models
  chatml,          // <|im_start|>user ... <|im_end|>: SmolLM, Qwen
  llama3,          // <|start_header_id|>user<|end_header_id|> ... <|eot_id|>
  gemma,           // <start_of_turn>user ... <end_of_turn>
  mistral,         // [INST] ... [/INST]: the first Mistral models
  mistral_v3,      // [INST] ...[/INST]: one space fewer
  mistral_tekken,  // [INST]...[/INST]: no spaces
};

// The name on a command line, and back.
std::string_view name_of(ChatFormat format);
std::optional<ChatFormat> chat_format_by_name(std::string_view name);

struct Message {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

struct ChatTemplate {
  ChatFormat format = ChatFormat::raw;
  std::string default_system;        // goes first if no system message does; may be empty
  std::string end_of_text = "</s>";  // what ends an answer in the Mistral forms
};

// Chooses by the file's own template. A file without one is a base model's and gets the raw form,
// whatever special tokens its vocabulary has: it was never trained on them.
ChatTemplate detect(const Vocabulary& vocabulary);

// The conversation as text, ending where the model's answer begins. The first token of the model
// isn't in it: Tokenizer::encode puts that. The result is to be encoded with special tokens parsed.
std::string format(const ChatTemplate& chat, std::span<const Message> messages);

// The system message that a template puts in front of conversations without one, where the template
// spells it out between `before` and `after`; else empty.
std::string find_default_system(std::string_view chat_template, std::string_view before,
                                std::string_view after);

}  // namespace lathe::text
