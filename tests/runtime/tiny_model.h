// Owns a model small enough to be decoded by oracles in a test: a GGUF image with random weights.
#pragma once

#include <cstdint>
#include <memory>

#include "lathe/plan/gguf.h"

namespace lathe::testing {

struct TinyModel {
  int layers = 2;
  int hidden = 256;
  int ffn = 256;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 64;
  int vocab = 160;
  Format weights = Format::q4_k;
  Format head = Format::q6_k;
  std::uint32_t seed = 1;
};

std::shared_ptr<const GgufFile> make_model(const TinyModel& model);

}  // namespace lathe::testing
