// Owns reading the hyperparameters that every decoder family shares, with llama.cpp's key names
// and defaults, and refusing what would change the computation in a way no family here covers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lathe/codegen/result.h"
#include "lathe/plan/gguf.h"
#include "lathe/plan/model_spec.h"

namespace lathe {

// The keys of one model: "block_count" stands for "llama.block_count".
class Hyperparameters {
 public:
  Hyperparameters(const GgufFile& file, std::string architecture)
      : file_(file), architecture_(std::move(architecture)) {}

  std::string key(std::string_view name) const;
  bool has(std::string_view name) const { return file_.value(key(name)) != nullptr; }

  // A count from 1 to 2^30. A per-layer array is accepted when all layers agree.
  Result<int> count(std::string_view name) const;
  Result<int> count_or(std::string_view name, int fallback) const;
  // The same, but zero is allowed and absence is zero.
  Result<int> count_or_zero(std::string_view name) const;
  // A finite real number.
  Result<double> real(std::string_view name) const;
  Result<double> real_or(std::string_view name, double fallback) const;

 private:
  Result<int> bounded(std::string_view name, int least) const;

  const GgufFile& file_;
  std::string architecture_;
};

// Sizes, epsilon, attention scale and one RoPE for all layers (pairing halves, no factors), from
// the keys every family writes. The family sets what differs.
Result<ModelSpec> read_decoder_spec(const GgufFile& file, const std::string& architecture);

// Per-pair divisors of the RoPE frequencies from rope_freqs.weight; empty when it is absent.
Result<std::vector<float>> read_rope_factors(const GgufFile& file, int dims);

// Sets the window of every layer from attention.sliding_window, when that is shorter than the
// trained context.
Result<void> read_uniform_window(const GgufFile& file, ModelSpec& spec);

// Refuses a sliding window that would hide part of the trained context.
Result<void> refuse_window(const GgufFile& file, const ModelSpec& spec);

// True when the file has biases on the q, k and v projections.
bool has_qkv_bias(const GgufFile& file);

}  // namespace lathe
