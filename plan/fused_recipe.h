// Owns the recipe with five kernels a layer: what Fusion::full makes of a model.
#pragma once

#include "lathe/codegen/result.h"
#include "lathe/plan/gguf.h"
#include "lathe/plan/plan.h"

namespace lathe {

// As add_decoder_steps(). Code::not_eligible, with the reason, for a model that has a matrix or an
// attention without a fused kernel.
Result<void> add_fused_steps(const GgufFile& file, Plan& plan);

}  // namespace lathe
