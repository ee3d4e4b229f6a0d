// Owns products of a matrix and columns: by Lathe's gemv, a launch for each column, by a kernel of
// the back end's own for numbers, and by both `dequantize` and that for many columns of quantized
// weights.
#include <algorithm>

#include "operation_rows.h"
#include "own_kernels.h"
#include "table_keys.h"

namespace lathe_ggml {

namespace {

constexpr std::int64_t kMostGemvColumns = 8;  // of one matrix; more, and weights are unpacked
constexpr std::int64_t kMostGemvLaunches = 512;
constexpr std::int64_t kMostDotColumns = 4;
constexpr std::int64_t kMostUnpackedBytes = 64 << 20;
constexpr std::int64_t kMostBatches = 65535;

bool columns_are_aligned(const ggml_tensor* columns) {
  return (columns->ne[1] == 1 || columns->nb[1] % 16 == 0) && matrices_are_aligned(columns);
}

bool is_quantized(const ggml_tensor* weights) {
  return !type_is_known(weights->type);
}

std::int64_t batches(const ggml_tensor* op) {
  return op->ne[2] * op->ne[3];
}

// The offset of the matrix that meets columns (i2, i3): heads of A are repeated.
std::int64_t matrix_offset(const ggml_tensor* op, std::int64_t i2, std::int64_t i3) {
  const ggml_tensor* a = op->src[0];
  return bytes_to(a, 0, i2 / (op->ne[2] / a->ne[2]), i3 / (op->ne[3] / a->ne[3]));
}

Steps lower_to_gemv(const ggml_tensor* op) {
  const ggml_tensor *a = op->src[0], *b = op->src[1];
  const std::string key = gemv_key(a->type, a->ne[0], a->ne[1]);
  Steps steps;
  for (std::int64_t i3 = 0; i3 < op->ne[3]; ++i3)
    for (std::int64_t i2 = 0; i2 < op->ne[2]; ++i2)
      for (std::int64_t i1 = 0; i1 < op->ne[1]; ++i1)
        steps.list.push_back(
            of_table(key, {operand(0, matrix_offset(op, i2, i3)),
                           operand(1, bytes_to(b, i1, i2, i3)), result(bytes_to(op, i1, i2, i3))}));
  return steps;
}

// On the matrix units, unless the operation asks for all of f32.
Step product_step(const ggml_tensor* op, const Shape& d, const Shape& a, const Shape& b,
                  std::vector<Argument> arguments) {
  const bool exact = op->op_params[0] == GGML_PREC_F32;
  // Of kernels/product.cu and kernels/rounded_product.cu.
  const std::int64_t rows = exact ? 64 : 128, columns = 64;
  const std::int64_t blocks = (d.ne[0] + rows - 1) / rows * ((d.ne[1] + columns - 1) / columns);
  OwnKernel own = {exact ? "product" : "rounded_product", text_of({.d = d, .a = a, .b = b}),
                   static_cast<std::uint32_t>(blocks),
                   static_cast<std::uint32_t>(d.ne[2] * d.ne[3]), 256};
  return of_own(std::move(own), std::move(arguments));
}

// How many rows are unpacked at a time.
std::int64_t unpacked_rows(const ggml_tensor* weights) {
  const std::int64_t fit = kMostUnpackedBytes / (4 * weights->ne[0]) / 64 * 64;
  return std::clamp<std::int64_t>(fit, 64, std::max<std::int64_t>(weights->ne[1], 64));
}

// Rows of weights are unpacked to f32 and multiplied, some at a time.
Steps lower_to_unpacked(const ggml_tensor* op) {
  const ggml_tensor *a = op->src[0], *b = op->src[1];
  const std::int64_t length = a->ne[0], most = unpacked_rows(a);
  const auto row_bytes = static_cast<std::int64_t>(ggml_row_size(a->type, length));
  Steps steps;
  steps.scratch_bytes = most * length * 4;
  for (std::int64_t i3 = 0; i3 < op->ne[3]; ++i3)
    for (std::int64_t i2 = 0; i2 < op->ne[2]; ++i2)
      for (std::int64_t first = 0; first < a->ne[1]; first += most) {
        const std::int64_t rows = std::min(most, a->ne[1] - first);
        steps.list.push_back(of_table(
            dequantize_key(a->type, length, rows),
            {operand(0, matrix_offset(op, i2, i3) + first * row_bytes), {Place::scratch}}));
        Shape d = shape_of(op), unpacked, columns = shape_of(b);
        d.ne[0] = rows;
        unpacked.ne[0] = length;
        unpacked.ne[1] = rows;
        unpacked.nb[0] = 4;
        unpacked.nb[1] = length * 4;
        for (Shape* shape : {&d, &columns}) shape->ne[2] = shape->ne[3] = 1;
        steps.list.push_back(product_step(op, d, unpacked, columns,
                                          {result(bytes_to(op, 0, i2, i3) + first * 4),
                                           {Place::scratch},
                                           operand(1, bytes_to(b, 0, i2, i3))}));
      }
  return steps;
}

}  // namespace

bool takes_gemv(const ggml_tensor* op) {
  const ggml_tensor *a = op->src[0], *b = op->src[1];
  return format_of(a->type) && rows_are_whole(a) && matrices_are_aligned(a) &&
         b->type == GGML_TYPE_F32 && b->nb[0] == 4 && columns_are_aligned(b) &&
         columns_are_aligned(op) && b->ne[1] <= kMostGemvColumns &&
         b->ne[1] * batches(op) <= (is_quantized(a) ? kMostGemvLaunches : 1);
}

const char* refuse_matrix_product(const ggml_tensor* op) {
  const ggml_tensor *a = op->src[0], *b = op->src[1];
  if (op->type != GGML_TYPE_F32) return "results but f32";
  if (!format_of(a->type)) return "this format";
  if (b->type != GGML_TYPE_F32 && b->type != GGML_TYPE_F16 && b->type != GGML_TYPE_BF16)
    return "this type of columns";
  if (takes_gemv(op)) return nullptr;
  if (!is_quantized(a)) return batches(op) <= kMostBatches ? nullptr : "this many matrices";
  if (!rows_are_whole(a) || !matrices_are_aligned(a)) return "rows that are no whole matrix";
  const std::int64_t parts = (a->ne[1] + unpacked_rows(a) - 1) / unpacked_rows(a);
  return parts * batches(op) <= kMostGemvLaunches ? nullptr : "this many matrices";
}

Steps lower_matrix_product(const ggml_tensor* op) {
  const ggml_tensor *a = op->src[0], *b = op->src[1];
  if (takes_gemv(op)) return lower_to_gemv(op);
  if (is_quantized(a)) return lower_to_unpacked(op);
  const std::vector<Argument> arguments = {result(), operand(0), operand(1)};
  if (op->ne[1] > kMostDotColumns)
    return one(product_step(op, shape_of(op), shape_of(a), shape_of(b), arguments));
  constexpr std::int64_t kWarps = 4;
  const std::int64_t blocks = (ggml_nelements(op) + kWarps - 1) / kWarps;
  OwnKernel own = {"dot", text_of({.d = shape_of(op), .a = shape_of(a), .b = shape_of(b)}),
                   static_cast<std::uint32_t>(blocks), 1, 32 * kWarps};
  return one(of_own(std::move(own), arguments));
}

}  // namespace lathe_ggml
