// Owns the environment variables of Lathe: the only place that reads them.
#pragma once

#include <span>
#include <string>

namespace lathe {

struct EnvironmentVariable {
  const char* name;
  const char* meaning;
};

// Every variable that Lathe reads, in the order of docs/environment.md.
std::span<const EnvironmentVariable> environment_variables();

// The values when it was called. An option given in code always wins over them.
struct Environment {
  std::string cache_directory;  // LATHE_CACHE_DIR, XDG_CACHE_HOME/lathe or HOME/.cache/lathe
  bool cache_off = false;       // LATHE_CACHE=off
  std::string nvrtc;            // LATHE_NVRTC
  std::string llvm;             // LATHE_LLVM
  std::string nvjitlink;        // LATHE_NVJITLINK
};
Environment read_environment();

}  // namespace lathe
