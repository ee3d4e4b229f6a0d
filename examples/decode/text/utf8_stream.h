// Owns the bytes between the model and the terminal: tokens may end inside a character, and only
// whole characters are to be printed.
#pragma once

#include <string>
#include <string_view>

#include "examples/decode/text/utf8.h"

namespace lathe::text {

class Utf8Stream {
 public:
  // Takes the bytes of the next token and returns what can be printed now. Bytes that can no longer
  // become a character come out as U+FFFD; a character that has only begun stays here.
  std::string push(std::string_view bytes) {
    pending_.append(bytes);
    return take(false);
  }

  // The end of the text: a character that never became whole comes out as U+FFFD.
  std::string flush() { return take(true); }

 private:
  std::string take(bool at_end) {
    std::string ready;
    size_t at = 0;
    while (at < pending_.size()) {
      const Utf8Step step = read_utf8(pending_, at);
      if (step.state == Utf8State::truncated && !at_end) {
        break;
      }
      append_utf8(step.code_point, &ready);
      at += step.length;
    }
    pending_.erase(0, at);
    return ready;
  }

  std::string pending_;  // at most the three first bytes of a character between calls
};

}  // namespace lathe::text
