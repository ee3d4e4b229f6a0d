// Owns the llama family: Llama 2 and 3, Mistral, SmolLM2, TinyLlama.
//
// Converters reorder the rows of q and k so that RoPE rotates adjacent values.
#include "plan/hyperparameters.h"

namespace lathe {

Result<ModelSpec> read_llama(const GgufFile& file) {
  LATHE_ASSIGN(ModelSpec spec, read_decoder_spec(file, "llama"));
  RopeSpec& rope = spec.ropes.front();
  rope.pairing = Pairing::adjacent;
  LATHE_ASSIGN(rope.factors, read_rope_factors(file, rope.dims));
  LATHE_TRY(read_uniform_window(file, spec));
  spec.qkv_bias = has_qkv_bias(file);
  return spec;
}

}  // namespace lathe
