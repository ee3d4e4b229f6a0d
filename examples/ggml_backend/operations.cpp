// Owns the table of operations, and those of it that are about elements, rows of numbers and
// angles. The rest: activations.cpp, matrix_product.cpp, rows.cpp, attention.cpp.
#include "operations.h"

#include <cmath>
#include <cstring>

#include "operation_rows.h"
#include "own_kernels.h"

namespace lathe_ggml {
namespace {

// What every kernel's 32-bit counts allow.
constexpr std::int64_t kMostElements = (1ll << 31) - 1;

const char* refuse_copy(const ggml_tensor* op) {
  const ggml_tensor* a = op->src[0];
  if (!type_is_known(a->type) || !type_is_known(op->type)) return "copies of quantized tensors";
  if (a->type == op->type) return nullptr;
  const auto converts = [](const ggml_tensor* t) {
    return holds_numbers(t) || t->type == GGML_TYPE_I32;
  };
  return converts(a) && converts(op) ? nullptr : "this conversion";
}
Steps lower_copy(const ggml_tensor* op) {
  return one(per_element("copy_elements", ggml_nelements(op),
                         {.d = shape_of(op), .a = shape_of(op->src[0])}, {result(), operand(0)}));
}

int binary_number(ggml_op op) {
  return op == GGML_OP_ADD ? 0 : op == GGML_OP_SUB ? 1 : op == GGML_OP_MUL ? 2 : 3;
}
const char* refuse_binary(const ggml_tensor* op) {
  if (!holds_numbers(op) || !holds_numbers(op->src[0]) || !holds_numbers(op->src[1]))
    return "this type";
  return ggml_can_repeat(op->src[1], op->src[0]) ? nullptr : "these shapes";
}
Steps lower_binary(const ggml_tensor* op) {
  return one(per_element("binary", ggml_nelements(op),
                         {.d = shape_of(op),
                          .a = shape_of(op->src[0]),
                          .b = shape_of(op->src[1]),
                          .numbers = {binary_number(op->op)}},
                         {result(), operand(0), operand(1)}));
}

const char* refuse_row_norm(const ggml_tensor* op) {
  if (op->type != GGML_TYPE_F32 || op->src[0]->type != GGML_TYPE_F32) return "types but f32";
  return nullptr;
}
Steps lower_row_norm(const ggml_tensor* op) {
  const int kind = op->op == GGML_OP_RMS_NORM ? 0 : op->op == GGML_OP_NORM ? 1 : 2;
  float epsilon = 0;
  std::memcpy(&epsilon, op->op_params, sizeof epsilon);
  return one(
      per_row("norm_rows", ggml_nrows(op), op->ne[0],
              {.d = shape_of(op), .a = shape_of(op->src[0]), .numbers = {kind}, .reals = {epsilon}},
              {result(), operand(0)}));
}

const char* refuse_row_result(const ggml_tensor* op) {
  if (op->src[0]->type != GGML_TYPE_F32) return "types but f32";
  return op->src[0]->ne[0] < (1 << 24) ? nullptr : "rows this long";
}
Steps lower_row_result(const ggml_tensor* op) {
  const ggml_tensor* a = op->src[0];
  return one(per_row(op->op == GGML_OP_ARGMAX ? "argmax" : "sum_rows", ggml_nrows(a), a->ne[0],
                     {.d = shape_of(op), .a = shape_of(a), .numbers = {op->op == GGML_OP_MEAN}},
                     {result(), operand(0)}));
}

const char* refuse_rope(const ggml_tensor* op) {
  const std::int32_t mode = op->op_params[2];
  if (mode != GGML_ROPE_TYPE_NORMAL && mode != GGML_ROPE_TYPE_NEOX) return "this rope mode";
  if (op->op_params[15] != 0) return "an offset of the values that rotate";
  if (op->type != op->src[0]->type || (op->type != GGML_TYPE_F32 && op->type != GGML_TYPE_F16))
    return "this type";
  return op->ne[0] % 2 == 0 && op->op_params[1] % 2 == 0 ? nullptr : "an odd number of values";
}
Steps lower_rope(const ggml_tensor* op) {
  const std::int32_t values = op->op_params[1];
  float r[6];  // base, frequency scale, extrapolation, attention factor, fast and slow beta
  std::memcpy(r, op->op_params + 5, sizeof r);
  float ramp[2] = {};  // of a context's length, which only what extrapolates has to tell
  if (r[2] != 0) ggml_rope_yarn_corr_dims(values, op->op_params[4], r[0], r[4], r[5], ramp);
  const bool factors = op->src[2] != nullptr;
  return one(per_element("rope", ggml_nelements(op) / 2,
                         {.d = shape_of(op),
                          .a = shape_of(op->src[0]),
                          .b = shape_of(op->src[1]),
                          .numbers = {values, op->op_params[2] == GGML_ROPE_TYPE_NEOX, factors},
                          .reals = {std::pow(r[0], -2.0f / static_cast<float>(values)), r[1], r[2],
                                    r[3], ramp[0], ramp[1]}},
                         {result(), operand(0), operand(1), factors ? operand(2) : result()}));
}

const char* refuse_nothing(const ggml_tensor*) {
  return nullptr;
}
Steps lower_to_nothing(const ggml_tensor*) {
  return {};
}

const Operation kOperations[] = {
    {GGML_OP_NONE, refuse_nothing, lower_to_nothing},
    {GGML_OP_RESHAPE, refuse_nothing, lower_to_nothing},
    {GGML_OP_VIEW, refuse_nothing, lower_to_nothing},
    {GGML_OP_PERMUTE, refuse_nothing, lower_to_nothing},
    {GGML_OP_TRANSPOSE, refuse_nothing, lower_to_nothing},
    {GGML_OP_CPY, refuse_copy, lower_copy},
    {GGML_OP_CONT, refuse_copy, lower_copy},
    {GGML_OP_DUP, refuse_copy, lower_copy},
    {GGML_OP_ADD, refuse_binary, lower_binary},
    {GGML_OP_SUB, refuse_binary, lower_binary},
    {GGML_OP_MUL, refuse_binary, lower_binary},
    {GGML_OP_DIV, refuse_binary, lower_binary},
    {GGML_OP_SCALE, refuse_map, lower_map},
    {GGML_OP_CLAMP, refuse_map, lower_map},
    {GGML_OP_SQR, refuse_map, lower_map},
    {GGML_OP_SQRT, refuse_map, lower_map},
    {GGML_OP_SIN, refuse_map, lower_map},
    {GGML_OP_COS, refuse_map, lower_map},
    {GGML_OP_LOG, refuse_map, lower_map},
    {GGML_OP_REPEAT, refuse_map, lower_map},
    {GGML_OP_UNARY, refuse_map, lower_map},
    {GGML_OP_GLU, refuse_glu, lower_glu},
    {GGML_OP_RMS_NORM, refuse_row_norm, lower_row_norm},
    {GGML_OP_NORM, refuse_row_norm, lower_row_norm},
    {GGML_OP_L2_NORM, refuse_row_norm, lower_row_norm},
    {GGML_OP_ARGMAX, refuse_row_result, lower_row_result},
    {GGML_OP_SUM_ROWS, refuse_row_result, lower_row_result},
    {GGML_OP_MEAN, refuse_row_result, lower_row_result},
    {GGML_OP_ROPE, refuse_rope, lower_rope},
    {GGML_OP_SOFT_MAX, refuse_soft_max, lower_soft_max},
    {GGML_OP_FLASH_ATTN_EXT, refuse_attention, lower_attention},
    {GGML_OP_GET_ROWS, refuse_get_rows, lower_get_rows},
    {GGML_OP_SET_ROWS, refuse_set_rows, lower_set_rows},
    {GGML_OP_MUL_MAT, refuse_matrix_product, lower_matrix_product},
};

const Operation* find(ggml_op op) {
  for (const Operation& operation : kOperations)
    if (operation.op == op) return &operation;
  return nullptr;
}

}  // namespace

bool is_free(const ggml_tensor* op) {
  const Operation* operation = find(op->op);
  return ggml_is_empty(op) || (operation && operation->lower == lower_to_nothing);
}

const char* refusal(const ggml_tensor* op) {
  const Operation* operation = find(op->op);
  if (!operation) return "this operation";
  if (is_free(op)) return nullptr;
  if (ggml_nelements(op) > kMostElements) return "tensors of more than 2^31 elements";
  for (const ggml_tensor* source : op->src)
    if (source && ggml_nrows(source) > kMostElements) return "tensors of more than 2^31 rows";
  return operation->refuse(op);
}

Steps lower(const ggml_tensor* op) {
  if (is_free(op)) return {};
  Steps steps = find(op->op)->lower(op);
  // Of an operand without elements.
  std::erase_if(steps.list,
                [](const Step& step) { return step.key.empty() && step.own.grid_x == 0; });
  return steps;
}

}  // namespace lathe_ggml
