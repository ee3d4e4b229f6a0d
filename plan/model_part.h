// Owns which parts a model has.
#pragma once

#include "lathe/codegen/result.h"
#include "lathe/plan/plan.h"

namespace lathe {

// Like `part`, with its layers counted.
Result<ModelPart> resolve_part(ModelPart part, const ModelSpec& spec);

}  // namespace lathe
