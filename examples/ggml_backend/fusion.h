// Owns pairs of operations that one kernel of Lathe's table computes: a norm and its weight, a
// product and its residual.
#pragma once

#include "ggml-impl.h"
#include "steps.h"

namespace lathe_ggml {

// Operands from this one on are those of a pair's first operation.
inline constexpr int kOfFirst = GGML_MAX_SRC;

// Whether nodes `index` and `index + 1` are such a pair. Their tensors are allocated.
bool is_pair(const ggml_cgraph* graph, int index);
Steps lower_pair(const ggml_tensor* first, const ggml_tensor* second);

}  // namespace lathe_ggml
