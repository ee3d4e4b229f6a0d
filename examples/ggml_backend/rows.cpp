// Owns reading and writing rows of tables by number.
#include <algorithm>

#include "operation_rows.h"
#include "own_kernels.h"
#include "table_keys.h"

namespace lathe_ggml {
namespace {

constexpr std::int64_t kMostLaunches = 64;
constexpr std::int64_t kMostRows = 8192;  // of a launch of embed

bool holds_row_numbers(const ggml_tensor* t) {
  return t->type == GGML_TYPE_I32 || t->type == GGML_TYPE_I64;
}

std::int64_t numbers_stride(const ggml_tensor* numbers, int dimension) {
  return static_cast<std::int64_t>(numbers->nb[dimension]);
}

// `embed` writes whole rows one after another, of row numbers that lie so too.
const char* refuse_embed(const ggml_tensor* op) {
  const ggml_tensor *table = op->src[0], *numbers = op->src[1];
  if (!format_of(table->type)) return "this format";
  if (!rows_are_whole(table) || !matrices_are_aligned(table))
    return "rows that are no whole matrix";
  if (numbers->type != GGML_TYPE_I32 || numbers->nb[0] != 4) return "these row numbers";
  if (numbers->ne[0] > kMostRows) return "this many rows at once";
  if (numbers->ne[1] * numbers->ne[2] > kMostLaunches) return "this many tables";
  return ggml_is_contiguous(op) && op->view_offs % 16 == 0 ? nullptr : "a strided result";
}

Steps lower_embed(const ggml_tensor* op) {
  const ggml_tensor *table = op->src[0], *numbers = op->src[1];
  Steps steps;
  for (std::int64_t i2 = 0; i2 < numbers->ne[2]; ++i2)
    for (std::int64_t i1 = 0; i1 < numbers->ne[1]; ++i1)
      steps.list.push_back(
          of_table(embed_key(table->type, table->ne[0], table->ne[1], numbers->ne[0]),
                   {operand(0, bytes_to(table, 0, i1, i2)),
                    operand(1, i1 * numbers_stride(numbers, 1) + i2 * numbers_stride(numbers, 2)),
                    result(bytes_to(op, 0, i1, i2))}));
  return steps;
}

}  // namespace

const char* refuse_get_rows(const ggml_tensor* op) {
  const ggml_type type = op->src[0]->type;
  if (!holds_row_numbers(op->src[1])) return "these row numbers";
  if (type == GGML_TYPE_I32 && op->type == type) return nullptr;
  if (op->type != GGML_TYPE_F32) return "results but f32";
  return holds_numbers(op->src[0]) ? nullptr : refuse_embed(op);
}

Steps lower_get_rows(const ggml_tensor* op) {
  if (!type_is_known(op->src[0]->type)) return lower_embed(op);
  return one(per_element("get_rows", ggml_nelements(op),
                         {.d = shape_of(op), .a = shape_of(op->src[0]), .b = shape_of(op->src[1])},
                         {result(), operand(0), operand(1)}));
}

const char* refuse_set_rows(const ggml_tensor* op) {
  if (!holds_row_numbers(op->src[1])) return "these row numbers";
  return holds_numbers(op) && holds_numbers(op->src[0]) ? nullptr : "this type";
}

Steps lower_set_rows(const ggml_tensor* op) {
  return one(per_element("set_rows", ggml_nelements(op->src[0]),
                         {.d = shape_of(op), .a = shape_of(op->src[0]), .b = shape_of(op->src[1])},
                         {result(), operand(0), operand(1)}));
}

}  // namespace lathe_ggml
