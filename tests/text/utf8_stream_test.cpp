// Owns the tests of the stream that prints whole characters only.
#include "examples/decode/text/utf8_stream.h"

#include <gtest/gtest.h>

namespace lathe::text {
namespace {

const std::string replacement = "\xEF\xBF\xBD";

TEST(Utf8Stream, HoldsBackBegunCharacters) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xF0"), "a");
  EXPECT_EQ(stream.push("\x9F"), "");
  EXPECT_EQ(stream.push("\x98"), "");
  EXPECT_EQ(stream.push("\x80"
                        "b"),
            "\xF0\x9F\x98\x80"
            "b");
  EXPECT_EQ(stream.flush(), "");
}

TEST(Utf8Stream, GivesTheSameTextHoweverItIsCut) {
  const std::string text = "a\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80\n";
  for (size_t step = 1; step <= text.size(); ++step) {
    Utf8Stream stream;
    std::string out;
    for (size_t at = 0; at < text.size(); at += step) {
      out += stream.push(std::string_view(text).substr(at, step));
    }
    out += stream.flush();
    EXPECT_EQ(out, text);
  }
}

TEST(Utf8Stream, ReplacesDamageAsSoonAsItIsCertain) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xFF"), replacement);
  EXPECT_EQ(stream.push("\xE4\xBD"), "");
  EXPECT_EQ(stream.push("a"), replacement + "a");
  EXPECT_EQ(stream.push("\x80"), replacement);
  EXPECT_EQ(stream.push("\xC3"), "");
  EXPECT_EQ(stream.push("\xC3"), replacement);
  EXPECT_EQ(stream.push("\xA9"), "\xC3\xA9");
}

TEST(Utf8Stream, ReplacesWhatFlushFinds) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xF0\x9F\x98"), "");
  EXPECT_EQ(stream.flush(), replacement);
  EXPECT_EQ(stream.flush(), "");
  EXPECT_EQ(stream.push("x"), "x");
}

TEST(Utf8Stream, RefusesFormsThatUtf8Forbids) {
  const auto all = [](std::string_view bytes) {
    Utf8Stream stream;
    const std::string out = stream.push(bytes);
    return out + stream.flush();
  };
  const std::string two = replacement + replacement;
  EXPECT_EQ(all("\xC0\xAF"), two);                                         // overlong
  EXPECT_EQ(all("\xE0\x80\x80"), two + replacement);                       // overlong
  EXPECT_EQ(all("\xED\xA0\x80"), two + replacement);                       // a surrogate
  EXPECT_EQ(all("\xF4\x90\x80\x80"), two + two);                           // past U+10FFFF
  EXPECT_EQ(all("\xF4\x8F\xBF\xBF"), "\xF4\x8F\xBF\xBF");                  // U+10FFFF itself
  EXPECT_EQ(all("\xED\x9F\xBF\xEE\x80\x80"), "\xED\x9F\xBF\xEE\x80\x80");  // around surrogates
}

TEST(Utf8Stream, KeepsZeroBytes) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push(std::string_view("a\0b", 3)), std::string("a\0b", 3));
}

}  // namespace
}  // namespace lathe::text
