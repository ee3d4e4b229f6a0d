// Owns what the environment variables mean to the library.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "lathe/runtime/environment.h"

namespace lathe {

enum class CacheMode : std::uint8_t { read_write, read_only, off };

// The values when it was called. An option given in code always wins over them.
struct Environment {
  std::string cache_directory;  // LATHE_CACHE_DIR, XDG_CACHE_HOME/lathe or HOME/.cache/lathe
  bool cache_nowhere = false;   // LATHE_CACHE_DIR is set, and empty
  CacheMode cache_mode = CacheMode::read_write;
  std::int64_t cache_cap = 0;  // bytes; 0: not set
  std::string log;             // "stderr", or a file's path
  std::string dump;            // a folder
  std::string nvrtc;
  std::string llvm;
  std::string nvjitlink;
  std::chrono::milliseconds wait_limit{};  // 0: not set; below 0: none
  std::string tuning;                      // as it stands there: whoever opens a session checks it
  std::string tuning_table;                // a file
  // A sentence for each value that makes no sense; it counts as not set, but for that of tuning.
  std::vector<std::string> problems;
};
Environment read_environment();

}  // namespace lathe
