// Owns what Lathe finds on this machine: what a bug report has to say of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lathe/codegen/emit.h"
#include "lathe/runtime/cache.h"

namespace lathe {

// A shared library that Lathe opens at run time.
struct LibraryFound {
  std::string name = {};     // "driver", "nvrtc", "llvm", "nvJitLink"
  std::string purpose = {};  // what Lathe takes it for
  std::string version = {};  // empty where it is missing
  std::string path = {};     // the file it was loaded from
  std::string problem = {};  // why it is not there; empty where it is
  bool named = false;        // by the environment or the caller: it was meant to be there
};

struct GpuFound {
  int ordinal = 0;
  std::string name = {};
  std::string target = {};  // "sm_90a"; empty where Lathe makes no code for it
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
  std::string problem = {};  // why it cannot be used; empty where it can
};

struct SystemReport {
  std::vector<LibraryFound> libraries;
  std::vector<GpuFound> gpus;
  std::string kernel_module = {};  // the first line of /proc/driver/nvidia/version
  CacheSettings cache;
  CacheState cache_state;
  std::string cache_problem = {};     // why it is not used, or not made yet; empty where it is
  std::vector<std::string> problems;  // a sentence for each thing that is not as it was asked for
};

// Opens every library once, and makes no context on a GPU.
SystemReport examine_system(const CompilerPaths& compilers);

}  // namespace lathe
