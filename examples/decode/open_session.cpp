// Owns the opening of the session and its way back to the CPU.
#include "examples/decode/open_session.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>

#include "examples/command_line.h"

namespace lathe::decode {

Result<OpenSession> open_session(std::shared_ptr<const GgufFile> file, const Options& options,
                                 command_line::ProgressLine& progress) {
  const auto start = std::chrono::steady_clock::now();
  SessionOptions wanted = options.session;
  wanted.progress = [&progress](std::string_view what, std::int64_t done, std::int64_t total) {
    progress.show(what, done, total);
  };
  OpenSession open;
  Result<std::unique_ptr<Session>> session = Session::open(file, wanted);
  if (!session && options.falls_back(session.error())) {
    open.notes.push_back("running on the CPU: " + session.error().message);
    wanted.executor = ExecutorKind::cpu;
    session = Session::open(std::move(file), wanted);
  }
  progress.clear();
  if (!session) return std::move(session).error();
  open.session = std::move(session).value();
  open.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::vector<std::string>& notes = open.session->report().notes;
  open.notes.insert(open.notes.end(), notes.begin(), notes.end());
  if (!options.quiet) {
    for (const std::string& note : open.notes) command_line::say(fmt::format("decode: {}\n", note));
  }
  return open;
}

}  // namespace lathe::decode
