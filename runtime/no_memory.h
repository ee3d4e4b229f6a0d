// Owns the error that host memory is wanting.
#pragma once

#include <fmt/format.h>

#include <new>

#include "lathe/codegen/result.h"

namespace lathe {

inline Error no_memory(const char* what) {
  return {Code::out_of_memory, fmt::format("There is no host memory for {}.", what), {}};
}

// What `make`, which returns a Result, gives; or that error.
template <typename Make>
auto or_no_memory(const char* what, const Make& make) -> decltype(make()) {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return no_memory(what);
  }
}

}  // namespace lathe
