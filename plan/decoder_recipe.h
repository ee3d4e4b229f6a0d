// Owns the recipe that all families share: which kernels turn one token into logits, in order.
#pragma once

#include "lathe/codegen/result.h"
#include "lathe/plan/gguf.h"
#include "lathe/plan/plan.h"

namespace lathe {

// Fills steps, weights, tables, arena and logits of a plan whose spec and options are set.
Result<void> add_decoder_steps(const GgufFile& file, Plan& plan);

}  // namespace lathe
