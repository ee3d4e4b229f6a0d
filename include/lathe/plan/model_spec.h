// Owns the hyperparameters of a decoder-only language model, independent of the file they came
// from, and the one table of model families.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lathe/codegen/kernel_key.h"
#include "lathe/codegen/result.h"
#include "lathe/plan/gguf.h"

namespace lathe {

// Rotary embedding: angle of pair i at position p is p * freq_scale * theta^(-2i/dims) / factor[i].
struct RopeSpec {
  double theta = 10000;
  int dims = 0;  // leading values of a head that rotate
  Pairing pairing = Pairing::adjacent;
  double freq_scale = 1;       // 1 / linear scaling factor
  std::vector<float> factors;  // per pair, from rope_freqs.weight; empty = all 1
};

struct LayerSpec {
  int window = 0;  // attention sees the last `window` positions; 0 = all
  int rope = 0;    // index into ModelSpec::ropes
};

struct ModelSpec {
  std::string architecture;  // "llama"
  std::string name;
  int layers = 0;
  int hidden = 0;
  int ffn = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int vocab = 0;
  int context = 0;  // positions the model was trained for
  float epsilon = 1e-5f;
  float embedding_scale = 1;  // gemma: sqrt(hidden)
  float attention_scale = 0;  // factor on q . k; 1/sqrt(head_dim) as a rule
  Activation activation = Activation::silu;
  bool tied_head = false;  // the output matrix is the embedding
  bool qkv_bias = false;
  bool qk_norm = false;         // RMSNorm on each head of q and k before RoPE
  bool post_norms = false;      // gemma3: norms on the outputs of attention and FFN
  std::vector<RopeSpec> ropes;  // at least one
  std::vector<LayerSpec> per_layer;
};

// One row per family: its architecture name in GGUF and how its spec is read.
struct ModelFamily {
  const char* architecture;
  const char* summary;
  Result<ModelSpec> (*read)(const GgufFile&);
};
std::span<const ModelFamily> model_families();

// Reads and checks the hyperparameters; the error names the key or tensor at fault.
Result<ModelSpec> read_model_spec(const GgufFile& file);

}  // namespace lathe
