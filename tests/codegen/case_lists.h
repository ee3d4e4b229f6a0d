// Owns what the lists of kernel cases share.
#pragma once

#include <cstddef>
#include <vector>

#include "tests/codegen/kernel_cases.h"

namespace lathe::testing {

using Cases = std::vector<KernelCase>;

inline constexpr int kWarps[] = {1, 2, 4, 8, 16};

// The i-th of a list, again and again: neighbouring cases differ in everything.
template <typename T, std::size_t N>
T turn(const T (&list)[N], int i) {
  return list[static_cast<std::size_t>(i) % N];
}

inline KernelKey base(const Family& family) {
  KernelKey key;
  key.type = family.type;
  key.format = family.format;
  return key;
}

// The i-th case of up to three matrices in the family's format, the third by turns in q6_k.
KernelCase product_case(const Family& family, int i, int k, int n, int n_b, int n_c);

// The i-th case of attention by `group` query heads a KV head, over `length` positions.
KernelCase attention_case(const Family& family, int i, int head_dim, int group, int length,
                          int window);

// Of plain_cases.cpp.
void glu_cases(const Family& family, Cases& out);
void elementwise_cases(const Family& family, Cases& out);
void layer_norm_cases(const Family& family, Cases& out);
void softmax_cases(const Family& family, Cases& out);
void dequantize_cases(const Family& family, Cases& out);
void quantize_cases(const Family& family, Cases& out);
// Of fused_cases.cpp; kernel_cases.cpp has those of the others with one operation each.
void matvec_cases(const Family& family, Cases& out);
void attend_cases(const Family& family, Cases& out);
void top_k_cases(const Family& family, Cases& out);
void sample_cases(const Family& family, Cases& out);

// Of atom_cases.cpp: those whose keys and values are sums of atoms.
void atoms_append_cases(const Family& family, Cases& out);
void atoms_attention_cases(const Family& family, Cases& out);

// Of prefill_cases.cpp.
void norm_tokens_cases(const Family& family, Cases& out);
void matmul_cases(const Family& family, Cases& out);
void append_tokens_cases(const Family& family, Cases& out);
void attend_tokens_cases(const Family& family, Cases& out);
void attend_rows_cases(const Family& family, Cases& out);
// Of gemm_cases.cpp.
void gemm_operand_cases(const Family& family, Cases& out);
void gemm_cases(const Family& family, Cases& out);

}  // namespace lathe::testing
