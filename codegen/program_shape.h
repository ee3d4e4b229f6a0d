// Owns the sizes of a persistent kernel's shared memory that follow from its phases.
#pragma once

#include "lathe/codegen/program.h"

namespace lathe {

// Of the longest vector.
int tile_columns(const Program& program);
// That the largest attention needs.
int attend_bytes(const Program& program);

}  // namespace lathe
