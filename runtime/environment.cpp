// Owns the reading of the environment.
#include "runtime/environment.h"

#include <cstdlib>
#include <string_view>

namespace lathe {
namespace {

constexpr EnvironmentVariable kVariables[] = {
    {"LATHE_CACHE_DIR", "directory of the compiled kernels kept between runs"},
    {"LATHE_CACHE", "off: keep nothing between runs"},
    {"LATHE_NVRTC", "path of libnvrtc, the compiler of the nvrtc route"},
    {"LATHE_LLVM", "path of liblathe_llvm, the compiler of the llvm route"},
    {"LATHE_NVJITLINK", "path of libnvJitLink, the assembler; off: the driver's own"},
    {"XDG_CACHE_HOME", "where LATHE_CACHE_DIR is not set: the cache is XDG_CACHE_HOME/lathe"},
    {"HOME", "where neither is set: the cache is HOME/.cache/lathe"},
};

std::string read(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

std::span<const EnvironmentVariable> environment_variables() {
  return kVariables;
}

Environment read_environment() {
  Environment environment;
  environment.cache_directory = read("LATHE_CACHE_DIR");
  if (environment.cache_directory.empty()) {
    const std::string xdg = read("XDG_CACHE_HOME");
    const std::string home = read("HOME");
    // The XDG specification says to ignore a relative path.
    if (xdg.starts_with('/')) {
      environment.cache_directory = xdg + "/lathe";
    } else if (home.starts_with('/')) {
      environment.cache_directory = home + "/.cache/lathe";
    }
  }
  environment.cache_off = read("LATHE_CACHE") == "off";
  environment.nvrtc = read("LATHE_NVRTC");
  environment.llvm = read("LATHE_LLVM");
  environment.nvjitlink = read("LATHE_NVJITLINK");
  return environment;
}

}  // namespace lathe
