// Owns the tests of both encodings on small vocabularies.
#include <gtest/gtest.h>

#include "examples/decode/text/tokenizer.h"
#include "tests/text/small_vocabularies.h"

namespace lathe::text {
namespace {

std::unique_ptr<const Tokenizer> make(const Vocabulary& vocabulary) {
  std::string error;
  auto tokenizer = Tokenizer::create(vocabulary, &error);
  EXPECT_NE(tokenizer, nullptr) << error;
  return tokenizer;
}

// The tokens of the text, parted by bars.
std::string tokens(const Vocabulary& vocabulary, std::string_view text, bool special = true) {
  std::string out;
  for (const int32_t id : make(vocabulary)->encode(text, special, false)) {
    out += (out.empty() ? "" : "|") + vocabulary.tokens[static_cast<size_t>(id)];
  }
  return out;
}

TEST(Bpe, MergesTheBestRankedPairFirst) {
  const Vocabulary v = small_bpe();
  EXPECT_EQ(tokens(v, "ab"), "ab");
  EXPECT_EQ(tokens(v, "abc"), "abc");  // by "bc", which ranks before "ab"
  EXPECT_EQ(tokens(v, "abab"), "ab|ab");
  EXPECT_EQ(tokens(v, "abcde"), "abcde");
  EXPECT_EQ(tokens(v, "cba"), "c|b|a");
}

TEST(Bpe, TakesTheLeftmostOfEqualPairs) {
  Vocabulary v = small_bpe();
  add_token(&v, "aa", TokenType::normal);
  v.merges = {"a a"};
  EXPECT_EQ(tokens(v, "aaa"), "aa|a");
  EXPECT_EQ(tokens(v, "aaaaa"), "aa|aa|a");
}

TEST(Bpe, NeverMergesAcrossPieces) {
  EXPECT_EQ(tokens(small_bpe(), "a a"),
            "a|\xC4\xA0"
            "a");
  EXPECT_EQ(tokens(small_bpe(), "a  a"),
            "a|\xC4\xA0|\xC4\xA0"
            "a");
}

TEST(Bpe, KeepsBytesThatAreNotUtf8) {
  const auto tokenizer = make(small_bpe());
  const std::string damaged =
      "a\xFF"
      "b";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(damaged, true, false), false), damaged);
}

TEST(Bpe, DropsBytesTheVocabularyCannotSay) {
  EXPECT_EQ(tokens(small_bpe(), "a\x01z"), "a");
}

TEST(Bpe, IgnoresMergesItCannotReach) {
  Vocabulary v = small_bpe();
  v.merges.insert(v.merges.begin(), {"a q", "nospace", "", " ", "c d"});
  EXPECT_EQ(tokens(v, "abcd"), "abc|d");
}

TEST(Bpe, MergesDoNotMakeControlTokens) {
  Vocabulary v = small_bpe();
  v.types[static_cast<size_t>(id_of(v, "ab"))] = static_cast<int32_t>(TokenType::control);
  EXPECT_EQ(tokens(v, "ab", false), "a|b");
  EXPECT_EQ(tokens(v, "ab", true), "ab");
}

TEST(Bpe, TakesWholePiecesFirstWhereTheModelDoes) {
  Vocabulary v = small_bpe();
  add_token(&v, "ecd", TokenType::normal);
  EXPECT_EQ(tokens(v, "ecd"), "e|c|d");
  v.pre = "llama-bpe";
  EXPECT_EQ(tokens(v, "ecd"), "ecd");
}

TEST(Bpe, ReadsTokensNotSpelledInBytesAsTheyAre) {
  Vocabulary v = small_bpe();
  const int32_t id = add_token(&v, "\xE4\xBD\xA0", TokenType::normal);
  EXPECT_EQ(make(v)->piece(id, false), "\xE4\xBD\xA0");
}

TEST(Spm, MergesTheHighestScoreFirst) {
  const Vocabulary v = small_spm();
  EXPECT_EQ(tokens(v, "hello"), "\xE2\x96\x81hello");
  EXPECT_EQ(tokens(v, "hello hello"), "\xE2\x96\x81hello|\xE2\x96\x81hello");
  EXPECT_EQ(tokens(v, "hell"), "\xE2\x96\x81|hell");
}

TEST(Spm, PutsASpaceBeforeTextAfterSpecialTokens) {
  Vocabulary v = small_spm();
  EXPECT_EQ(tokens(v, "h</s>h<b>h"), "\xE2\x96\x81|h|</s>|\xE2\x96\x81|h|<b>|\xE2\x96\x81|h");
  v.add_space_prefix = false;
  EXPECT_EQ(tokens(v, "h</s>h"), "h|</s>|h");
}

TEST(Spm, WritesOtherCharactersAsBytes) {
  Vocabulary v = small_spm();
  v.add_space_prefix = false;
  EXPECT_EQ(tokens(v, "h\xC3\xA9"), "h|<0xC3>|<0xA9>");
  EXPECT_EQ(tokens(v, "\xFFh"), "<0xFF>|h");
  EXPECT_EQ(tokens(v, std::string_view("\0h", 2)), "<unk>|h");
  v.unknown = -1;
  EXPECT_EQ(tokens(v, std::string_view("\0h", 2)), "h");
}

TEST(Spm, TextThatSpellsSpecialTokensStaysText) {
  Vocabulary v = small_spm();
  for (const char* token : {"<", "s", ">", "<s", "0x41"}) {
    add_token(&v, token, TokenType::normal);
  }
  v.add_space_prefix = false;
  EXPECT_EQ(tokens(v, "<s>", false), "<s|>");
  EXPECT_EQ(tokens(v, "<s>", true), "<s>");
  EXPECT_EQ(tokens(v, "<b>", false), "<b>");  // user-defined tokens are found in any text
}

TEST(Spm, DecodesToTheTextThatWasEncoded) {
  const auto tokenizer = make(small_spm());
  for (const char* text : {"hello", " hello", "h\xC3\xA9llo  o", "", " ", "hello <b> hello"}) {
    const std::vector<int32_t> ids = tokenizer->encode(text, true, true);
    // After a special token the text gets a space of its own, which no decoder can tell from one
    // that was there.
    const std::string want =
        std::string_view(text) == "hello <b> hello" ? "hello <b>  hello" : text;
    EXPECT_EQ(tokenizer->decode(ids, false), want);
  }
}

TEST(Spm, ReadsByteTokens) {
  const Vocabulary v = small_spm();
  const auto tokenizer = make(v);
  EXPECT_EQ(tokenizer->piece(id_of(v, "<0x0A>"), false), "\n");
  EXPECT_EQ(tokenizer->piece(id_of(v, "<0xFF>"), false), "\xFF");
}

TEST(Spm, MalformedByteTokensStandForThemselves) {
  Vocabulary v = small_spm();
  const int32_t id = add_token(&v, "<0xZZ>", TokenType::byte);
  EXPECT_EQ(make(v)->piece(id, false), "<0xZZ>");
}

TEST(Encoding, LongTextTakesNoLongTime) {
  // Either merge in quadratic time would take minutes here.
  const Vocabulary bpe = small_bpe();
  EXPECT_EQ(make(bpe)->encode(std::string(1 << 20, 'a'), true, false).size(), size_t{1} << 20);
  const Vocabulary spm = small_spm();
  std::string text;
  for (int i = 0; i < 1 << 18; ++i) {
    text += "hello";
  }
  EXPECT_EQ(make(spm)->encode(text, true, false).size(), size_t{1} << 18);
}

}  // namespace
}  // namespace lathe::text
