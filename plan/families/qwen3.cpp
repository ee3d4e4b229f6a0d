// Owns the qwen3 family. A llama layer with RMSNorm on each head of q and k before RoPE, which
// rotates halves.
#include "plan/hyperparameters.h"

namespace lathe {

Result<ModelSpec> read_qwen3(const GgufFile& file) {
  LATHE_ASSIGN(ModelSpec spec, read_decoder_spec(file, "qwen3"));
  LATHE_TRY(refuse_window(file, spec));
  spec.qk_norm = true;
  spec.qkv_bias = has_qkv_bias(file);
  return spec;
}

}  // namespace lathe
