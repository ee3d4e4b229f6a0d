// Owns what is in a model file, in figures, and what a plan of it would be refused for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lathe/codegen/format.h"
#include "lathe/codegen/result.h"
#include "lathe/plan/gguf.h"
#include "lathe/plan/model_spec.h"

namespace lathe {

// "q4_k"; of a type without a format its name in P64 containers; else "type 99".
std::string tensor_type_name(std::uint32_t ggml_type);

struct ModelReport {
  struct Type {
    std::string name;
    std::int64_t tensors = 0;
    std::int64_t bytes = 0;
  };

  Container container = Container::gguf;
  int version = 0;
  std::int64_t file_bytes = 0;
  std::int64_t data_offset = 0;  // see FileFacts
  std::int64_t tensors = 0;
  std::int64_t tensor_bytes = 0;
  std::string largest_tensor;  // empty: there are no tensors
  std::int64_t largest_tensor_bytes = 0;
  std::vector<Type> types;  // most bytes first
  ModelSpec spec;           // layers, heads, head_dim ...; empty where the family is refused
  int context = 0;          // what kv_bytes is for
  std::int64_t kv_bytes = 0;
  std::string refusal;  // why this file cannot be decoded; empty: it can
};

// `context` 0: as a session takes it. What the file holds is never an error but a refusal;
// invalid_argument: a context below 0 or above the model's, a KV format no cache has.
Result<ModelReport> report_model(const GgufFile& file, int context = 0, Format kv = Format::f16);

}  // namespace lathe
