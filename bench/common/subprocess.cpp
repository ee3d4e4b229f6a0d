// Owns the pipes to a child process.
#include "bench/common/subprocess.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace lathe::bench {

namespace {

constexpr int kPollMilliseconds = 200;

Error failed(std::string_view what, int number) {
  return Error{Code::io, fmt::format("cannot {}: {}", what, std::strerror(number)), {}};
}

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }

  int get() const { return number_; }
  void close() {
    if (number_ >= 0) ::close(std::exchange(number_, -1));
  }

 private:
  int number_ = -1;
};

struct Pipe {
  Descriptor read;
  Descriptor write;

  static Result<Pipe> create() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return failed("make a pipe", errno);
    return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
  }
};

Result<pid_t> start(const std::string& command_line, const Pipe& out, const Pipe& err) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out.write.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, err.write.get(), STDERR_FILENO);
  std::string shell = "sh", flag = "-c", command = command_line;
  std::array<char*, 4> arguments = {shell.data(), flag.data(), command.data(), nullptr};
  pid_t child = 0;
  const int status =
      ::posix_spawn(&child, "/bin/sh", &actions, nullptr, arguments.data(), ::environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (status != 0) return failed("start /bin/sh", status);
  return child;
}

// Appends what is there. False at the end of the stream.
bool drain(const Descriptor& from, std::string& to) {
  char buffer[1 << 14];
  const ssize_t count = ::read(from.get(), buffer, sizeof buffer);
  if (count > 0) to.append(buffer, static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && errno == EINTR);
}

void read_all(Pipe& out, Pipe& err, CommandOutput& output, const std::function<void()>& waiting) {
  const std::array<std::pair<Descriptor*, std::string*>, 2> streams = {
      {{&out.read, &output.out}, {&err.read, &output.err}}};
  while (out.read.get() >= 0 || err.read.get() >= 0) {
    if (waiting) waiting();
    // poll() passes over a descriptor of -1.
    std::array<pollfd, 2> wanted = {{{out.read.get(), POLLIN, 0}, {err.read.get(), POLLIN, 0}}};
    if (::poll(wanted.data(), wanted.size(), kPollMilliseconds) <= 0) continue;
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if (wanted[i].revents != 0 && !drain(*streams[i].first, *streams[i].second))
        streams[i].first->close();
    }
  }
}

}  // namespace

Result<CommandOutput> run_command(const std::string& command_line,
                                  const std::function<void()>& waiting) {
  LATHE_ASSIGN(Pipe out, Pipe::create());
  LATHE_ASSIGN(Pipe err, Pipe::create());
  LATHE_ASSIGN(const pid_t child, start(command_line, out, err));
  // Else their ends would never be seen.
  out.write.close();
  err.write.close();
  CommandOutput output;
  read_all(out, err, output, waiting);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return failed("wait for a child process", errno);
  }
  output.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return output;
}

std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace lathe::bench
