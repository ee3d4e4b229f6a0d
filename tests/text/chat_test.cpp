// Owns the tests of the forms of conversations.
#include "examples/decode/text/chat.h"

#include <gtest/gtest.h>

#include "tests/text/small_vocabularies.h"

namespace lathe::text {
namespace {

const std::vector<Message> conversation = {
    {"system", "Be brief."}, {"user", " Hi "}, {"assistant", " Hello! "}, {"user", "Bye"}};

std::string formatted(ChatFormat as, const std::vector<Message>& messages = conversation) {
  ChatTemplate chat;
  chat.format = as;
  return format(chat, messages);
}

Vocabulary with_template(std::string text) {
  Vocabulary v = small_bpe();
  v.chat_template = std::move(text);
  return v;
}

TEST(ChatFormat, Raw) {
  EXPECT_EQ(formatted(ChatFormat::raw), "Be brief. Hi  Hello! Bye");
}

TEST(ChatFormat, ChatMl) {
  EXPECT_EQ(formatted(ChatFormat::chatml),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
            "<|im_start|>assistant\n Hello! <|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
            "<|im_start|>assistant\n");
}

TEST(ChatFormat, Llama3) {
  EXPECT_EQ(formatted(ChatFormat::llama3),
            "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST(ChatFormat, Gemma) {
  EXPECT_EQ(formatted(ChatFormat::gemma),
            "<start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n"
            "<start_of_turn>model\nHello!<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n"
            "<start_of_turn>model\n");
}

TEST(ChatFormat, Mistral) {
  EXPECT_EQ(formatted(ChatFormat::mistral),
            "[INST] Be brief.\n\n Hi  [/INST] Hello!</s>[INST] Bye [/INST]");
  EXPECT_EQ(formatted(ChatFormat::mistral_v3),
            "[INST] Be brief.\n\n Hi [/INST] Hello!</s>[INST] Bye[/INST]");
  EXPECT_EQ(formatted(ChatFormat::mistral_tekken),
            "[INST]Be brief.\n\n Hi [/INST]Hello!</s>[INST]Bye[/INST]");
}

TEST(ChatFormat, NothingSaidYet) {
  EXPECT_EQ(formatted(ChatFormat::raw, {}), "");
  EXPECT_EQ(formatted(ChatFormat::chatml, {}), "<|im_start|>assistant\n");
}

TEST(ChatFormat, DefaultSystemMessageOnlyWithoutAnother) {
  ChatTemplate chat;
  chat.format = ChatFormat::chatml;
  chat.default_system = "Default.";
  const std::vector<Message> user = {{"user", "Hi"}};
  EXPECT_TRUE(format(chat, user).starts_with("<|im_start|>system\nDefault.<|im_end|>\n"));
  EXPECT_EQ(format(chat, conversation).find("Default."), std::string::npos);
  chat.format = ChatFormat::raw;
  EXPECT_EQ(format(chat, user), "Hi");
}

TEST(ChatNames, ThereAndBack) {
  for (const ChatFormat each :
       {ChatFormat::raw, ChatFormat::chatml, ChatFormat::llama3, ChatFormat::gemma,
        ChatFormat::mistral, ChatFormat::mistral_v3, ChatFormat::mistral_tekken}) {
    EXPECT_EQ(chat_format_by_name(name_of(each)), each);
  }
  EXPECT_EQ(chat_format_by_name("nonesuch"), std::nullopt);
}

TEST(ChatDetect, ByTemplate) {
  const auto found = [](std::string text) { return detect(with_template(std::move(text))).format; };
  EXPECT_EQ(found("{{ '<|im_start|>' + role }}"), ChatFormat::chatml);
  EXPECT_EQ(found("{{ '<|start_header_id|>' + role }}"), ChatFormat::llama3);
  EXPECT_EQ(found("{{ '<start_of_turn>' + role }}"), ChatFormat::gemma);
  EXPECT_EQ(found("{{ '[INST] ' + content + ' [/INST]' }}"), ChatFormat::mistral);
  EXPECT_EQ(found("[AVAILABLE_TOOLS] {{ '[INST] ' + content + '[/INST]' }}"),
            ChatFormat::mistral_v3);
  EXPECT_EQ(found("[AVAILABLE_TOOLS] {{ \"[INST]\" + content + \"[/INST]\" }}"),
            ChatFormat::mistral_tekken);
}

TEST(ChatDetect, WithoutATemplateItIsABaseModel) {
  Vocabulary v;
  EXPECT_EQ(detect(v).format, ChatFormat::raw);
  v.tokens = {"<start_of_turn>", "<end_of_turn>", "<|im_start|>", "<|im_end|>"};
  EXPECT_EQ(detect(v).format, ChatFormat::raw);
  EXPECT_EQ(detect(with_template("{{ something else }}")).format, ChatFormat::raw);
}

TEST(ChatDetect, TheEndOfTextIsTheVocabularysOwn) {
  EXPECT_EQ(detect(small_bpe()).end_of_text, "<|im_end|>");
  EXPECT_EQ(detect(Vocabulary{}).end_of_text, "</s>");
}

TEST(ChatDetect, DefaultSystemMessage) {
  const auto found = [](std::string text) {
    return detect(with_template(std::move(text))).default_system;
  };
  EXPECT_EQ(found("{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}"), "You help.");
  EXPECT_EQ(found("{{ '<|im_start|>system\\nYou help.<|im_end|>\\n' }}"), "You help.");
  EXPECT_EQ(found("{{- \"<|im_start|>system\\nIt's\\ttwo\\nlines.<|im_end|>\\n\" }}"),
            "It's\ttwo\nlines.");
  EXPECT_EQ(found("{{ '<|im_start|>system\\nIt\\'s fine.<|im_end|>' }}"), "It's fine.");
  // Put together from parts, so not known before the template runs.
  EXPECT_EQ(found("{{ '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}"), "");
  EXPECT_EQ(found("<|im_start|>system\n{{ content }}<|im_end|>"), "");
  EXPECT_EQ(found("{{ '<|im_start|>system\\n' }}"), "");
  EXPECT_EQ(found("{{ '<|im_start|>system<|im_end|>' }}"), "");
  // The first that is spelled out counts.
  EXPECT_EQ(found("{{ '<|im_start|>system\\n' + x + '<|im_end|>' }}"
                  "{{ '<|im_start|>system\\nFound.<|im_end|>' }}"),
            "Found.");
}

}  // namespace
}  // namespace lathe::text
