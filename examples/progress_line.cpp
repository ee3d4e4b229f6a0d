// Owns when and how progress is drawn.
#include "examples/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "examples/command_line.h"

namespace lathe::command_line {

namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 1s;  // before the first line about an operation
constexpr auto kRedraw = 100ms;
constexpr auto kPlainLine = 5s;

bool redraws(int descriptor) {
  const std::string terminal = environment_value(Variable::terminal).value_or("dumb");
  return ::isatty(descriptor) && terminal != "dumb";
}

// Large totals are bytes, small ones are counts of things.
std::string amount(std::int64_t done, std::int64_t total) {
  constexpr std::int64_t kMegabyte = 1'000'000;
  if (total < kMegabyte) return fmt::format("{} of {}", done, total);
  return fmt::format("{} of {} MB", done / kMegabyte, total / kMegabyte);
}

}  // namespace

ProgressLine::ProgressLine(bool enabled) : enabled_(enabled), terminal_(redraws(STDERR_FILENO)) {}

void ProgressLine::show(std::string_view what, std::int64_t done, std::int64_t total) {
  if (!enabled_) return;
  const Clock::time_point now = Clock::now();
  if (what != what_) {
    what_ = what;
    next_ = now + kPatience;
  }
  if (now < next_) return;
  next_ = now + (terminal_ ? Clock::duration(kRedraw) : Clock::duration(kPlainLine));
  if (terminal_) {
    say(fmt::format("\r\033[K{}: {}", what, amount(done, total)));
    drawn_ = true;
  } else {
    say(fmt::format("{}: {}\n", what, amount(done, total)));
  }
}

void ProgressLine::clear() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

}  // namespace lathe::command_line
