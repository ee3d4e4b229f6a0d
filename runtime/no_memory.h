// Owns the error that host memory is wanting.
#pragma once

#include <fmt/format.h>

#include "lathe/codegen/result.h"

namespace lathe {

inline Error no_memory(const char* what) {
  return {Code::out_of_memory, fmt::format("There is no host memory for {}.", what), {}};
}

}  // namespace lathe
