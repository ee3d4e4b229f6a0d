// Owns the qwen2 family: Qwen2 and Qwen2.5. A llama layer with biases on q, k and v, and RoPE on
// halves.
#include "plan/hyperparameters.h"

namespace lathe {

Result<ModelSpec> read_qwen2(const GgufFile& file) {
  LATHE_ASSIGN(ModelSpec spec, read_decoder_spec(file, "qwen2"));
  LATHE_TRY(refuse_window(file, spec));
  spec.qkv_bias = true;
  return spec;
}

}  // namespace lathe
