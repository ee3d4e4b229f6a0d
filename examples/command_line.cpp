// Owns the messages that are the same in all programs.
#include "examples/command_line.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace lathe::command_line {

namespace {

volatile std::sig_atomic_t was_interrupted = 0;

// A log of many lines is set off from its name, so that it reads as it was written.
std::string detail_text(const Detail& detail) {
  const std::size_t end = detail.value.find_last_not_of(" \n");
  const std::string value = detail.value.substr(0, end == std::string::npos ? 0 : end + 1);
  if (value.find('\n') == std::string::npos) return fmt::format("  {}: {}\n", detail.name, value);
  std::string text = fmt::format("  {}:\n    ", detail.name);
  for (char c : value) text += c == '\n' ? std::string("\n    ") : std::string(1, c);
  return text + "\n";
}

}  // namespace

std::string version(std::string_view program) {
  return fmt::format("{} {} (generator {})", program, LATHE_PROGRAM_VERSION,
                     codegen_fingerprint().substr(0, 12));
}

void open_standard_streams() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    // open() takes the lowest number that is free: this one.
    if (::fcntl(descriptor, F_GETFD) < 0 && errno == EBADF) ::open("/dev/null", O_RDWR);
  }
}

void note_interrupt() {
  struct sigaction action {};
  action.sa_handler = [](int) { was_interrupted = 1; };
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
}

bool interrupted() {
  return was_interrupted != 0;
}

Result<void> print(std::string_view text) {
  const bool good = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (good && std::fflush(stdout) == 0) return {};
  return Error{Code::io, fmt::format("cannot write to stdout: {}", std::strerror(errno)), {}};
}

void say(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void print_error(std::string_view program, const Error& error) {
  std::string text = fmt::format("{}: {}\n", program, error.message);
  for (const Detail& detail : error.details) text += detail_text(detail);
  say(text);
}

void print_usage_error(std::string_view program, std::string_view message) {
  say(fmt::format("{}: {}\nTry '{} --help'.\n", program, message, program));
}

}  // namespace lathe::command_line
