// Owns the line on stderr that shows what a long operation is doing.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace lathe::command_line {

// On a terminal, one line that is redrawn and goes away; elsewhere, a plain line every few seconds.
// What is done within a second leaves no trace.
class ProgressLine {
 public:
  explicit ProgressLine(bool enabled);
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(std::string_view what, std::int64_t done, std::int64_t total);
  // To be called before anything else is written to the terminal.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  bool enabled_;
  bool terminal_;
  bool drawn_ = false;
  std::string what_;
  Clock::time_point next_;  // when the line may be drawn again
};

}  // namespace lathe::command_line
