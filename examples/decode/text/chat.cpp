// Owns the forms of conversations and the guess at which one a model wants.
#include "examples/decode/text/chat.h"

#include <algorithm>
#include <array>

namespace lathe::text {

namespace {

struct FormatName {
  ChatFormat format;
  std::string_view name;
};

constexpr std::array<FormatName, 7> format_names = {{
    {ChatFormat::raw, "raw"},
    {ChatFormat::chatml, "chatml"},
    {ChatFormat::llama3, "llama3"},
    {ChatFormat::gemma, "gemma"},
    {ChatFormat::mistral, "mistral"},
    {ChatFormat::mistral_v3, "mistral-v3"},
    {ChatFormat::mistral_tekken, "mistral-tekken"},
}};

std::string_view trim(std::string_view text) {
  constexpr std::string_view space = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(space);
  if (begin == std::string_view::npos) {
    return "";
  }
  return text.substr(begin, text.find_last_not_of(space) - begin + 1);
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

ChatFormat detect_by_template(std::string_view text) {
  if (contains(text, "<|im_start|>")) {
    return ChatFormat::chatml;
  }
  if (contains(text, "<|start_header_id|>")) {
    return ChatFormat::llama3;
  }
  if (contains(text, "<start_of_turn>")) {
    return ChatFormat::gemma;
  }
  if (contains(text, "[INST]")) {
    // The templates of the later models also speak of tools; where they put the spaces tells which.
    if (contains(text, "[AVAILABLE_TOOLS]") && !contains(text, " [INST]")) {
      return contains(text, "\"[INST]\"") ? ChatFormat::mistral_tekken : ChatFormat::mistral_v3;
    }
    return ChatFormat::mistral;
  }
  return ChatFormat::raw;
}

std::string format_chatml(std::span<const Message> messages) {
  std::string out;
  for (const Message& message : messages) {
    out += "<|im_start|>" + message.role + "\n" + message.content + "<|im_end|>\n";
  }
  return out + "<|im_start|>assistant\n";
}

std::string format_llama3(std::span<const Message> messages) {
  std::string out;
  for (const Message& message : messages) {
    out += "<|start_header_id|>" + message.role + "<|end_header_id|>\n\n";
    out.append(trim(message.content)).append("<|eot_id|>");
  }
  return out + "<|start_header_id|>assistant<|end_header_id|>\n\n";
}

// Gemma knows no system role: its words go before the next message of the user.
std::string format_gemma(std::span<const Message> messages) {
  std::string out;
  std::string system;
  for (const Message& message : messages) {
    if (message.role == "system") {
      system.append(trim(message.content)).append("\n\n");
      continue;
    }
    out += "<start_of_turn>" + (message.role == "assistant" ? "model" : message.role) + "\n";
    out.append(system).append(trim(message.content)).append("<end_of_turn>\n");
    system.clear();
  }
  return out + "<start_of_turn>model\n";
}

// Nor do these models; and the answer follows the closing mark at once.
std::string format_mistral(const ChatTemplate& chat, std::span<const Message> messages) {
  const std::string after_open = chat.format == ChatFormat::mistral_tekken ? "" : " ";
  const std::string before_close = chat.format == ChatFormat::mistral ? " " : "";
  std::string out;
  std::string system;
  for (const Message& message : messages) {
    if (message.role == "system") {
      system += message.content + "\n\n";
    } else if (message.role == "assistant") {
      out += after_open;
      out.append(trim(message.content)).append(chat.end_of_text);
    } else {
      out += "[INST]" + after_open + system + message.content + before_close + "[/INST]";
      system.clear();
    }
  }
  return out;
}

// What the escapes of a string in a template stand for.
std::string unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out.push_back(text[i]);
      continue;
    }
    const char next = text[++i];
    out.push_back(next == 'n' ? '\n' : next == 't' ? '\t' : next);
  }
  return out;
}

// Whether the text goes on to its end as one string, opened by this quote (0 if it stands outside
// of any).
bool is_literal(std::string_view text, char quote) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (quote != 0 && text[i] == quote) {
      return false;
    }
  }
  return !contains(text, "{{") && !contains(text, "{%");
}

}  // namespace

std::string_view name_of(ChatFormat format) {
  for (const FormatName& row : format_names) {
    if (row.format == format) {
      return row.name;
    }
  }
  return "";
}

std::optional<ChatFormat> chat_format_by_name(std::string_view name) {
  for (const FormatName& row : format_names) {
    if (row.name == name) {
      return row.format;
    }
  }
  return std::nullopt;
}

std::string find_default_system(std::string_view chat_template, std::string_view before,
                                std::string_view after) {
  for (size_t at = chat_template.find(before); at != std::string_view::npos;
       at = chat_template.find(before, at + 1)) {
    std::string_view rest = chat_template.substr(at + before.size());
    // A line break in a template is either one or written as an escape.
    if (rest.starts_with("\n")) {
      rest.remove_prefix(1);
    } else if (rest.starts_with("\\n")) {
      rest.remove_prefix(2);
    } else {
      continue;
    }
    const size_t end = rest.find(after);
    const std::string_view content = rest.substr(0, end);
    const char quote = at > 0 ? chat_template[at - 1] : '\0';
    const bool quoted = quote == '\'' || quote == '"';
    if (end != std::string_view::npos && end > 0 && is_literal(content, quoted ? quote : '\0')) {
      return unescape(content);
    }
  }
  return "";
}

ChatTemplate detect(const Vocabulary& vocabulary) {
  ChatTemplate chat;
  chat.format = detect_by_template(vocabulary.chat_template);
  if (chat.format == ChatFormat::chatml) {
    chat.default_system =
        find_default_system(vocabulary.chat_template, "<|im_start|>system", "<|im_end|>");
  }
  if (vocabulary.eos >= 0 && static_cast<size_t>(vocabulary.eos) < vocabulary.tokens.size()) {
    chat.end_of_text = vocabulary.tokens[static_cast<size_t>(vocabulary.eos)];
  }
  return chat;
}

std::string format(const ChatTemplate& chat, std::span<const Message> messages) {
  std::vector<Message> all(messages.begin(), messages.end());
  const bool has_system = !all.empty() && all.front().role == "system";
  if (!has_system && !chat.default_system.empty()) {
    all.insert(all.begin(), Message{"system", chat.default_system});
  }
  switch (chat.format) {
    case ChatFormat::chatml:
      return format_chatml(all);
    case ChatFormat::llama3:
      return format_llama3(all);
    case ChatFormat::gemma:
      return format_gemma(all);
    case ChatFormat::mistral:
    case ChatFormat::mistral_v3:
    case ChatFormat::mistral_tekken:
      return format_mistral(chat, all);
    case ChatFormat::raw:
      break;
  }
  std::string out;
  for (const Message& message : messages) {
    out += message.content;
  }
  return out;
}

}  // namespace lathe::text
