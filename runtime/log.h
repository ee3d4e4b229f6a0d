// Owns the lines of the log: their form, and where they go.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lathe/runtime/log.h"

namespace lathe {

// One event: "lathe,1,kernel,built" and its fields. A text with a comma, a quote or the end of a
// line is quoted as in CSV; the ends of lines in it become spaces.
class LogLine {
 public:
  LogLine(std::string_view subject, std::string_view event);
  LogLine& field(std::string_view name, std::string_view value);
  LogLine& field(std::string_view name, const std::string& value) {
    return field(name, std::string_view(value));
  }
  LogLine& field(std::string_view name, const char* value) {
    return field(name, std::string_view(value));
  }
  LogLine& field(std::string_view name, double milliseconds);
  template <typename Integer>
  requires std::is_integral_v<Integer> LogLine& field(std::string_view name, Integer value) {
    return field(name, std::to_string(value));
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Copies share one destination. Empty: nobody listens, and no line need be made.
class Log {
 public:
  Log() = default;
  // The hook, else what LATHE_LOG says ("stderr" or a file's path), else nothing. A file that
  // cannot be opened is a note.
  static Log open(LogHook hook, const std::string& where, std::vector<std::string>& notes);

  explicit operator bool() const { return hook_ != nullptr; }
  // For what is told of by its own lines; empty where nobody listens.
  LogHook hook() const { return hook_ ? *hook_ : LogHook(); }
  void write(LogLevel level, const LogLine& line) const {
    if (hook_) (*hook_)(level, line.text());
  }

 private:
  std::shared_ptr<const LogHook> hook_;
};

}  // namespace lathe
