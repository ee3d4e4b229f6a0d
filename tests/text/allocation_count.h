// Owns the count of this test program's allocations.
#pragma once

#include <cstddef>

namespace lathe::text {

// How often memory has been asked for with new, by anything, since the program began.
size_t allocation_count();

}  // namespace lathe::text
