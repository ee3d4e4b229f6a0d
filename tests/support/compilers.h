// Owns where tests find the compilers of the routes: LATHE_NVRTC and LATHE_LLVM in the environment,
// as for any program that uses Lathe, or else what this build found.
#pragma once

#include <cstdlib>

#include "lathe/codegen/emit.h"

namespace lathe::testing {

inline std::string path_or(const char* variable, const char* built_in) {
  const char* value = std::getenv(variable);
  return value ? value : built_in;
}

inline const Compilers& compilers() {
  static const Compilers shared(
      {path_or("LATHE_NVRTC", LATHE_TEST_NVRTC), path_or("LATHE_LLVM", LATHE_TEST_LLVM)});
  return shared;
}

}  // namespace lathe::testing
