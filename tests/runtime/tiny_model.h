// Owns the model that runtime tests decode: a tiny llama in the formats of a q4_k_m file.
#pragma once

#include <memory>

#include "lathe/plan/gguf.h"
#include "tests/plan/tiny_models.h"

namespace lathe::testing {

// Lives as long as the file is held.
std::shared_ptr<const GgufFile> make_model(int layers = 2);
// Any other, for tests of what shapes and formats change.
std::shared_ptr<const GgufFile> make_model(const TinyModel& model);
TinyModel model_shape(int layers);  // make_model()'s

}  // namespace lathe::testing
