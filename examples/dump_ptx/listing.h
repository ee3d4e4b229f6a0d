// Owns what --list prints.
#pragma once

#include <string>

#include "lathe/library.h"

namespace lathe::dump_ptx {

// Kernels, formats, fields, targets, and the routes with what stands in the way of each.
std::string listing(const Compilers& compilers);

}  // namespace lathe::dump_ptx
