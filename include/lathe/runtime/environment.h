// Owns the list of the environment variables that Lathe, its programs and the driver look at.
//
// docs/environment.md, `lathe doctor` and the help texts are made from this list, and nothing reads
// a variable that is not in it. Threads: callable from any thread, while none changes a variable.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace lathe {

// In the order of environment_variables().
enum class Variable : std::uint8_t {
  cache,
  cache_directory,
  cache_cap,
  xdg_cache_home,
  home,
  log,
  dump,
  nvrtc,
  llvm,
  nvjitlink,
  wait_limit,
  tuning,
  tuning_table,
  cuda_home,
  cuda_path,
  path,
  terminal,
  visible_devices,
};

enum class VariableReader : std::uint8_t { library, programs, driver };

struct EnvironmentVariable {
  Variable variable;
  VariableReader reader;
  const char* name;     // "LATHE_CACHE_DIR"
  const char* type;     // what its value is: "folder", "file or off", "size" ...
  const char* unset;    // what holds where it is not set
  const char* meaning;  // what it does, as part of a sentence
};

std::span<const EnvironmentVariable> environment_variables();
const EnvironmentVariable& environment_variable(Variable variable);
// Nothing where it is not set. What Lathe was opened with earlier does not change with it.
std::optional<std::string> environment_value(Variable variable);

}  // namespace lathe
