// Owns the reading and writing of single UTF-8 characters, for text that may be damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lathe::text {

inline constexpr char32_t replacement_character = 0xFFFD;

enum class Utf8State {
  valid,      // a whole character
  truncated,  // the text ends inside a character that is right so far
  invalid,    // bytes that no further byte can make into a character
};

struct Utf8Step {
  Utf8State state;
  char32_t code_point;  // replacement_character unless valid
  size_t length;        // bytes to step over, at least 1
};

// Reads the character at `at`, which must be inside the text. Of damaged text a step takes the
// longest run that could have begun a character (the practice that Unicode recommends), so that one
// damaged character becomes one replacement.
inline Utf8Step read_utf8(std::string_view text, size_t at) {
  const auto byte_at = [&](size_t index) { return static_cast<unsigned char>(text[index]); };
  const unsigned char lead = byte_at(at);
  if (lead < 0x80) {
    return {Utf8State::valid, lead, 1};
  }
  // The second byte's range is what keeps out overlong forms, surrogates and values past U+10FFFF.
  size_t length = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  char32_t value = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
    value = lead & 0x1F;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    value = lead & 0x0F;
    low = lead == 0xE0 ? 0xA0 : 0x80;
    high = lead == 0xED ? 0x9F : 0xBF;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    value = lead & 0x07;
    low = lead == 0xF0 ? 0x90 : 0x80;
    high = lead == 0xF4 ? 0x8F : 0xBF;
  } else {
    return {Utf8State::invalid, replacement_character, 1};
  }
  for (size_t i = 1; i < length; ++i) {
    if (at + i == text.size()) {
      return {Utf8State::truncated, replacement_character, i};
    }
    const unsigned char next = byte_at(at + i);
    if (next < low || next > high) {
      return {Utf8State::invalid, replacement_character, i};
    }
    value = value << 6 | (next & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8State::valid, value, length};
}

inline void append_utf8(char32_t code_point, std::string* out) {
  const auto put = [out](char32_t value) { out->push_back(static_cast<char>(value)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

}  // namespace lathe::text
