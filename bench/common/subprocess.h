// Owns running another program and keeping what it prints.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "lathe/codegen/result.h"

namespace lathe::bench {

struct CommandOutput {
  int status = 0;  // exit status; 128 + signal when a signal ended it, as shells say it
  std::string out;
  std::string err;
};

// Runs a command line in /bin/sh with nothing on stdin. `waiting` is called several times a second
// until it ends.
Result<CommandOutput> run_command(const std::string& command_line,
                                  const std::function<void()>& waiting = {});

// A text as one word of a command line, whatever is in it.
std::string shell_quoted(std::string_view text);

}  // namespace lathe::bench
