// Owns the tests of what the tokenizer adds to an encoding: checks, special tokens, stops.
#include "examples/decode/text/tokenizer.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/text/small_vocabularies.h"

namespace lathe::text {
namespace {

std::string error_of(const Vocabulary& vocabulary) {
  std::string error;
  EXPECT_EQ(Tokenizer::create(vocabulary, &error), nullptr);
  return error;
}

std::unique_ptr<const Tokenizer> make(const Vocabulary& vocabulary) {
  std::string error;
  auto tokenizer = Tokenizer::create(vocabulary, &error);
  EXPECT_NE(tokenizer, nullptr) << error;
  return tokenizer;
}

TEST(TokenizerCreate, NamesWhatIsWrong) {
  Vocabulary v = small_bpe();
  v.pre = "klingon";
  EXPECT_NE(error_of(v).find("'klingon'"), std::string::npos);

  v = small_bpe();
  v.model = "bert";
  EXPECT_NE(error_of(v).find("'bert'"), std::string::npos);

  v = small_bpe();
  v.model = "no_vocab";
  EXPECT_NE(error_of(v).find("no vocabulary"), std::string::npos);

  v = small_bpe();
  v.merges.clear();
  EXPECT_NE(error_of(v).find("no merges"), std::string::npos);

  v = small_bpe();
  v.eos = 1000;
  EXPECT_NE(error_of(v).find("end-of-text token is 1000"), std::string::npos);

  v = small_bpe();
  v.types.pop_back();
  EXPECT_NE(error_of(v).find("types for 14"), std::string::npos);

  v = small_spm();
  v.scores.clear();
  EXPECT_NE(error_of(v).find("0 scores"), std::string::npos);

  v = small_spm();
  v.scores[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(error_of(v).find("token 7"), std::string::npos);

  v = small_bpe();
  v.tokens.clear();
  EXPECT_NE(error_of(v).find("0 tokens"), std::string::npos);
}

TEST(TokenizerCreate, TakesVocabulariesWithoutTypes) {
  Vocabulary v = small_bpe();
  v.types.clear();
  // Nothing is special then: what is left are the letters that the vocabulary has.
  EXPECT_EQ(make(v)->encode("<|im_end|>", true, false),
            (std::vector<int32_t>{id_of(v, "e"), id_of(v, "d")}));
}

TEST(TokenizerEncode, FirstTokenComesOnlyIfBothAskForIt) {
  Vocabulary v = small_spm();
  const auto with = make(v);
  EXPECT_EQ(with->encode("", true, true), std::vector<int32_t>{v.bos});
  EXPECT_TRUE(with->encode("", true, false).empty());
  v.add_bos = false;
  EXPECT_TRUE(make(v)->encode("", true, true).empty());
  v.add_bos = true;
  v.bos = -1;
  EXPECT_TRUE(make(v)->encode("", true, true).empty());
}

TEST(TokenizerEncode, FindsTheLongestSpecialTokenAtTheFirstPlace) {
  Vocabulary v = small_bpe();
  const int32_t shorter = add_token(&v, "<<", TokenType::control);
  const int32_t longer = add_token(&v, "<<a", TokenType::control);
  const int32_t later = add_token(&v, "<a>>>>", TokenType::control);
  const auto tokenizer = make(v);
  EXPECT_EQ(tokenizer->encode("<<b", true, false), (std::vector<int32_t>{shorter, id_of(v, "b")}));
  EXPECT_EQ(tokenizer->encode("<<a>>>>", true, false), (std::vector<int32_t>{longer}));
  EXPECT_EQ(tokenizer->encode("<a>>>>", true, false), (std::vector<int32_t>{later}));
}

TEST(TokenizerEncode, LooksPastControlTokensForUserDefinedOnes) {
  Vocabulary v = small_bpe();
  add_token(&v, "<ab>", TokenType::control);
  const int32_t user = add_token(&v, "<a", TokenType::user_defined);
  EXPECT_EQ(make(v)->encode("<ab>", false, false), (std::vector<int32_t>{user, id_of(v, "b")}));
}

TEST(TokenizerPiece, HidesSpecialTokensUnlessAsked) {
  Vocabulary v = small_bpe();
  const int32_t unused = add_token(&v, "<unused0>", TokenType::unused);
  const int32_t user = add_token(&v, "<h1>", TokenType::user_defined);
  const auto tokenizer = make(v);
  EXPECT_EQ(tokenizer->piece(v.eos, false), "");
  EXPECT_EQ(tokenizer->piece(v.eos, true), "<|im_end|>");
  EXPECT_EQ(tokenizer->piece(unused, false), "");
  EXPECT_EQ(tokenizer->piece(user, false), "<h1>");
  EXPECT_EQ(tokenizer->piece(id_of(v,
                                   "\xC4\xA0"
                                   "a"),
                             false),
            " a");
}

TEST(TokenizerPiece, IdsOutsideHaveNone) {
  const auto tokenizer = make(small_bpe());
  for (const int32_t id : {-1, tokenizer->size(), INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer->piece(id, true), "");
    EXPECT_FALSE(tokenizer->is_stop(id));
  }
}

TEST(TokenizerStop, KnowsTheGivenIdsAndTheNames) {
  Vocabulary v = small_bpe();
  const int32_t named = add_token(&v, "<end_of_turn>", TokenType::normal);
  v.eot = add_token(&v, "<over>", TokenType::control);
  const auto tokenizer = make(v);
  EXPECT_TRUE(tokenizer->is_stop(v.eos));
  EXPECT_TRUE(tokenizer->is_stop(v.eot));
  EXPECT_TRUE(tokenizer->is_stop(named));
  EXPECT_FALSE(tokenizer->is_stop(v.bos));
  EXPECT_FALSE(tokenizer->is_stop(id_of(v, "a")));
}

TEST(TokenizerStop, HtmlIsNoEnd) {
  Vocabulary v = small_bpe();
  const int32_t strike = add_token(&v, "</s>", TokenType::user_defined);
  EXPECT_FALSE(make(v)->is_stop(strike));
  v.types.back() = static_cast<int32_t>(TokenType::control);
  EXPECT_TRUE(make(v)->is_stop(strike));
}

TEST(TokenizerStop, EndOfMessageIsNoEndWhereThereAreOthers) {
  Vocabulary v = small_bpe();
  const int32_t end = add_token(&v, "<|end|>", TokenType::control);
  EXPECT_TRUE(make(v)->is_stop(end));
  const int32_t returned = add_token(&v, "<|return|>", TokenType::control);
  add_token(&v, "<|call|>", TokenType::control);
  EXPECT_FALSE(make(v)->is_stop(end));
  EXPECT_TRUE(make(v)->is_stop(returned));
}

}  // namespace
}  // namespace lathe::text
