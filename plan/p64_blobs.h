// Owns making the types of tensors that only P64 containers have.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lathe/codegen/result.h"
#include "lathe/plan/gguf.h"

namespace lathe::p64 {

// From Q4_K: the same nibbles, and for each 32 values the products of scales, rounded to f16.
Result<std::vector<std::byte>> make_q4_k_soa(const GgufTensor& tensor,
                                             std::span<const std::byte> q4_k);

// From any format: -1, 0 or 1 times the mean of the magnitudes, whichever is next.
Result<std::vector<std::byte>> make_ternary(const GgufTensor& tensor,
                                            std::span<const std::byte> blocks);

}  // namespace lathe::p64
