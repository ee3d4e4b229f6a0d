// Owns the models whose kernels are measured: their hyperparameters, and their formats as files
// have them. There is no data: plans need none.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lathe/library.h"

namespace lathe::bench::kernels {

struct Model {
  const char* name;
  const char* architecture;
  int layers;
  int hidden;
  int ffn;
  int heads;
  int kv_heads;
  int head_dim;
  int vocab;
  int context;
  double theta;
  double epsilon;
  bool tied;  // the head is the embedding
};
std::span<const Model> models();
Result<const Model*> model_by_name(std::string_view name);

// What matrices are stored as: all in one format, or those that a quantizer stores in q6_k when it
// stores the others in q4_k ("q4_k_m").
struct Mix {
  std::optional<Format> all;
};
Result<Mix> mix_by_name(std::string_view name);

// The format of one tensor. Rows that no block divides are stored as quantizers store them then:
// q4_k as q5_0, q6_k as q8_0.
Format stored_format(const Model& model, const Mix& mix, std::string_view tensor, int layer, int k);

// The model as a file whose tensors have shapes and no bytes.
std::shared_ptr<const GgufFile> file_of(const Model& model, const Mix& mix);

}  // namespace lathe::bench::kernels
