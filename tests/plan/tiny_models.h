// Owns small models of every family with random weights, as GGUF files in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lathe/codegen/format.h"
#include "tests/plan/gguf_writer.h"

namespace lathe::testing {

// What a test decides about a model. Written into the file by tiny_model(), and the reference model
// computes from it directly, so that a wrong reading of the file shows as a wrong result.
struct TinyModel {
  std::string architecture = "llama";
  int layers = 2;
  int hidden = 64;
  int ffn = 96;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 16;
  int rotary = 16;
  int vocab = 80;
  int context = 64;
  double epsilon = 1e-5;
  double theta = 10000;
  double linear_factor = 1;                  // of RoPE; the key is written when it is not 1
  bool rope_factors = false;                 // write rope_freqs.weight
  int window = 0;                            // sliding window; the key is written when it is not 0
  bool tied = true;                          // no output.weight
  Format weights = Format::f32;              // of every matrix ...
  std::map<std::string, Format> exceptions;  // ... except these tensors
  std::uint32_t seed = 1;

  bool is_gemma() const { return architecture == "gemma3"; }
  bool has_qk_norm() const { return is_gemma() || architecture == "qwen3"; }
  bool has_qkv_bias() const { return architecture == "qwen2"; }
  bool rotates_halves() const { return architecture != "llama"; }
  // Gemma: five local layers, then a global one. Elsewhere a window is every layer's.
  bool is_local(int layer) const { return window > 0 && (!is_gemma() || (layer + 1) % 6 != 0); }
  float rope_factor(int pair) const { return 1.0f + 0.5f * static_cast<float>(pair); }
};

// A model of each family, small but with every feature of the family in use.
TinyModel tiny_llama();
TinyModel tiny_qwen2();
TinyModel tiny_qwen3();
TinyModel tiny_gemma3();
std::vector<TinyModel> all_families();

// The same of a shape and format that fused kernels take: heads of 32 or more, weights with tiles.
TinyModel fusible(TinyModel model, Format weights = Format::q8_0);

// The formats of a two-layer llama file as a quantizer mixes them under a name.
struct FileMix {
  const char* name;
  Format weights;
  std::map<std::string, Format> exceptions;
};
std::vector<FileMix> file_mixes();

// The model's file; tests may add keys and tensors before taking the image.
GgufWriter tiny_model_writer(const TinyModel& model);
GgufImage tiny_model(const TinyModel& model);

}  // namespace lathe::testing
