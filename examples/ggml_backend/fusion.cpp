// Owns the conditions and the steps of pairs.
#include "fusion.h"

#include <cstring>

#include "table_keys.h"

namespace lathe_ggml {
namespace {

// The operand of a pair's second operation that is not the first one's result.
int other_operand(const ggml_tensor* first, const ggml_tensor* second) {
  return second->src[0] == first ? 1 : 0;
}

bool is_plain(const ggml_tensor* t) {
  return t->type == GGML_TYPE_F32 && ggml_is_contiguous(t) &&
         reinterpret_cast<std::uint64_t>(t->data) % 16 == 0;
}

// ggml may have given the second result the memory of what only the first reads.
bool overlap(const ggml_tensor* a, const ggml_tensor* b) {
  const auto* from_a = static_cast<const char*>(a->data);
  const auto* from_b = static_cast<const char*>(b->data);
  return from_a < from_b + ggml_nbytes(b) && from_b < from_a + ggml_nbytes(a);
}

bool is_weighted_norm(const ggml_tensor* norm, const ggml_tensor* product) {
  const ggml_tensor *x = norm->src[0], *weight = product->src[other_operand(norm, product)];
  return is_plain(x) && is_plain(weight) && is_plain(product) && x->ne[0] < (1 << 24) &&
         ggml_nrows(x) < (1 << 20) && ggml_nelements(weight) == x->ne[0] &&
         weight->ne[0] == x->ne[0] && !overlap(x, product) && !overlap(weight, product);
}

bool is_product_with_residual(const ggml_tensor* product, const ggml_tensor* sum) {
  const ggml_tensor *x = product->src[1], *residual = sum->src[other_operand(product, sum)];
  return takes_gemv(product) && ggml_nrows(product) == 1 && is_plain(x) && is_plain(residual) &&
         is_plain(sum) && ggml_are_same_shape(residual, sum) && !overlap(x, sum);
}

}  // namespace

bool is_pair(const ggml_cgraph* graph, int index) {
  if (ggml_can_fuse(graph, index, {GGML_OP_RMS_NORM, GGML_OP_MUL}))
    return is_weighted_norm(graph->nodes[index], graph->nodes[index + 1]);
  if (ggml_can_fuse(graph, index, {GGML_OP_MUL_MAT, GGML_OP_ADD}))
    return is_product_with_residual(graph->nodes[index], graph->nodes[index + 1]);
  return false;
}

Steps lower_pair(const ggml_tensor* first, const ggml_tensor* second) {
  const Argument other = operand(other_operand(first, second));
  if (first->op == GGML_OP_RMS_NORM) {
    float epsilon = 0;
    std::memcpy(&epsilon, first->op_params, sizeof epsilon);
    const ggml_tensor* x = first->src[0];
    return one(of_table(rms_norm_key(x->ne[0], ggml_nrows(x), epsilon),
                        {operand(kOfFirst), other, result()}));
  }
  const ggml_tensor* weights = first->src[0];
  return one(of_table(gemv_key(weights->type, weights->ne[0], weights->ne[1]) + ".res",
                      {operand(kOfFirst), operand(kOfFirst + 1), other, result()}));
}

}  // namespace lathe_ggml
