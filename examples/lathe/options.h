// Owns the command line of lathe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lathe/library.h"

namespace lathe::tool {

enum class Command {
  stat,
  list,
  show,
  trim,
  verify,
  clear,
  export_file,
  import_file,
  inspect,
  convert,
  doctor,
  variables
};

struct Options {
  Command command = Command::doctor;
  std::string directory;  // empty: the environment's
  bool json = false;
  std::string key;                     // show: a kernel's key, or the beginning of an entry's name
  bool ptx = false;                    // show: print it
  std::string cubin;                   // show: write it to this file
  std::int64_t bytes = 0;              // trim and import; 0: the cap of the environment
  bool remove = false;                 // verify
  std::string file;                    // export and import; inspect and convert: the model
  std::string target;                  // convert
  std::string integrity = "metadata";  // inspect
  int context = 0;                     // inspect; 0: as a session takes it
  std::string kv = "f16";              // inspect
  bool tensors = false;                // inspect: a line for each
  std::uint32_t page_bytes = 16384;    // convert
  std::string weights = "as_stored";   // convert
  bool quiet = false;                  // convert: no progress
  bool markdown = false;               // variables
  CompilerPaths compilers;
};

// The exit code if there is nothing left to do.
std::optional<int> parse_options(int argc, const char* const* argv, Options& options);

}  // namespace lathe::tool
