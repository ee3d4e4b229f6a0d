// Owns the writing of log lines to a file or to stderr, where the user asked for it.
#include "runtime/log.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "runtime/file_descriptor.h"

namespace lathe {
namespace {

// A line is one write to the end of the file, so that lines of processes do not mix.
void write_line(const FileDescriptor& file, std::string_view line) {
  const std::string whole = std::string(line) + "\n";
  static_cast<void>(file.write(whole.data(), whole.size()));  // a log that fails is no failure
}

}  // namespace

LogLine::LogLine(std::string_view subject, std::string_view event)
    : text_(fmt::format("lathe,1,{},{}", subject, event)) {}

LogLine& LogLine::field(std::string_view name, std::string_view value) {
  text_ += fmt::format(",{}=", name);
  if (value.find_first_of(",\"\n\r") == value.npos) {
    text_ += value;
    return *this;
  }
  text_ += '"';
  for (const char c : value) {
    if (c == '"') text_ += '"';
    text_ += c == '\n' || c == '\r' ? ' ' : c;
  }
  text_ += '"';
  return *this;
}

LogLine& LogLine::field(std::string_view name, double milliseconds) {
  return field(name, fmt::format("{:.2f}", milliseconds));
}

Log Log::open(LogHook hook, const std::string& where, std::vector<std::string>& notes) {
  Log log;
  if (!hook && where == "stderr") {
    hook = [](LogLevel, std::string_view line) {
      FileDescriptor standard(STDERR_FILENO);
      write_line(standard, line);
      standard.release();
    };
  } else if (!hook && !where.empty()) {
    const auto file = std::make_shared<FileDescriptor>(
        ::open(where.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
    if (file->get() < 0) {
      notes.push_back(fmt::format("log: none. Cannot open {}: {}.", where, std::strerror(errno)));
      return log;
    }
    hook = [file](LogLevel, std::string_view line) { write_line(*file, line); };
  }
  if (hook) log.hook_ = std::make_shared<const LogHook>(std::move(hook));
  return log;
}

}  // namespace lathe
