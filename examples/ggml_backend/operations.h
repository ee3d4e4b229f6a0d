// Owns what the back end can do: for each ggml operation why one is refused, and its steps.
#pragma once

#include "steps.h"

namespace lathe_ggml {

// Null, or in a few words why the back end does not compute this operation.
const char* refusal(const ggml_tensor* op);
// True for operations that need no work: views and the like.
bool is_free(const ggml_tensor* op);
// The launches of an operation that is not refused.
Steps lower(const ggml_tensor* op);

}  // namespace lathe_ggml
