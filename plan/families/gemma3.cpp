// Owns the gemma3 family (text models).
//
// Scaled embeddings; norms on q and k heads and on the outputs of attention and FFN; GeGLU; in each
// group of layers all but the last are local: they see a sliding window and have their own RoPE
// base. Converters have added the 1 of Gemma's (1 + w) to the norm weights.
#include <cmath>

#include "plan/hyperparameters.h"

namespace lathe {
namespace {

constexpr int kDefaultPattern = 6;  // layers in a group
constexpr double kLocalTheta = 10000;
constexpr int kLayersOf27b = 62;

Result<void> read_local_layers(const GgufFile& file, ModelSpec& spec) {
  const Hyperparameters keys(file, spec.architecture);
  LATHE_ASSIGN(const int window, keys.count_or_zero("attention.sliding_window"));
  if (window == 0) return {};
  LATHE_ASSIGN(const int pattern,
               keys.count_or("attention.sliding_window_pattern", kDefaultPattern));
  RopeSpec local = spec.ropes.front();
  local.freq_scale = 1;
  LATHE_ASSIGN(local.theta, keys.real_or("rope.freq_base_swa", kLocalTheta));
  if (local.theta <= 0) {
    return Error{Code::corrupt_file,
                 "key 'gemma3.rope.freq_base_swa' is not positive",
                 {{"file", file.path()}}};
  }
  spec.ropes.push_back(std::move(local));
  for (int i = 0; i < spec.layers; ++i) {
    if ((i + 1) % pattern != 0) spec.per_layer[static_cast<std::size_t>(i)] = {window, 1};
  }
  return {};
}

}  // namespace

Result<ModelSpec> read_gemma3(const GgufFile& file) {
  LATHE_ASSIGN(ModelSpec spec, read_decoder_spec(file, "gemma3"));
  LATHE_TRY(read_local_layers(file, spec));
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
  if (spec.layers == kLayersOf27b) {
    // The 27B model scales by the width of a query group of its hidden size, not by its head size.
    spec.attention_scale = 1 / std::sqrt(static_cast<float>(spec.hidden / spec.heads));
  }
  spec.activation = Activation::gelu_tanh;
  spec.qk_norm = true;
  spec.post_norms = true;
  return spec;
}

}  // namespace lathe
