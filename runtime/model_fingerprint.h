// Owns what tells one model file from another where both have the same shapes.
#pragma once

#include <cstdint>

#include "lathe/plan/gguf.h"
#include "lathe/plan/plan.h"

namespace lathe {

// Of every tensor its name, type and shape, and bytes of its beginning, middle and end; and of the
// plan its tables. Touches three pages of each tensor: nothing for a step.
std::uint64_t model_fingerprint(const GgufFile& file, const Plan& plan);

}  // namespace lathe
