// Owns softmax and attention.
#include <cmath>
#include <cstring>

#include "operation_rows.h"
#include "own_kernels.h"

namespace lathe_ggml {
namespace {

constexpr std::int64_t kLongestHead = 512;  // 32 times kMost of kernels/attention.cu

// ALiBi: slopes of heads are powers of two bases. 0: there are none.
struct Slopes {
  int split = 1;  // the greatest power of two among the heads
  float first = 0, second = 0;
};
Slopes slopes_of(std::int64_t heads, float greatest_bias) {
  Slopes slopes;
  while (2 * slopes.split <= heads) slopes.split *= 2;
  if (greatest_bias <= 0) return slopes;
  const auto split = static_cast<float>(slopes.split);
  slopes.first = std::pow(2.0f, -greatest_bias / split);
  slopes.second = std::pow(2.0f, -greatest_bias / 2.0f / split);
  return slopes;
}

}  // namespace

const char* refuse_soft_max(const ggml_tensor* op) {
  if (op->type != GGML_TYPE_F32 || op->src[0]->type != GGML_TYPE_F32) return "types but f32";
  if (op->src[1] && !holds_numbers(op->src[1])) return "this type of mask";
  return op->src[2] && op->src[2]->type != GGML_TYPE_F32 ? "this type of sinks" : nullptr;
}

Steps lower_soft_max(const ggml_tensor* op) {
  float r[2];  // scale, greatest bias
  std::memcpy(r, op->op_params, sizeof r);
  const Slopes slopes = slopes_of(op->ne[2], r[1]);
  const bool mask = op->src[1] != nullptr, sinks = op->src[2] != nullptr;
  return one(
      per_row("soft_max", ggml_nrows(op), op->ne[0],
              {.d = shape_of(op),
               .a = shape_of(op->src[0]),
               .b = shape_of(op->src[1]),
               .numbers = {mask, sinks, slopes.split},
               .reals = {r[0], slopes.first, slopes.second}},
              {result(), operand(0), mask ? operand(1) : result(), sinks ? operand(2) : result()}));
}

const char* refuse_attention(const ggml_tensor* op) {
  const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3];
  if (op->type != GGML_TYPE_F32 || q->type != GGML_TYPE_F32) return "types but f32";
  if (!holds_numbers(k) || !holds_numbers(v)) return "a quantized KV cache";
  if (q->ne[0] > kLongestHead || v->ne[0] > kLongestHead) return "heads this long";
  if (k->ne[1] < 1) return "no keys";
  if (mask && !holds_numbers(mask)) return "this type of mask";
  return op->src[4] && op->src[4]->type != GGML_TYPE_F32 ? "this type of sinks" : nullptr;
}

Steps lower_attention(const ggml_tensor* op) {
  const ggml_tensor* q = op->src[0];
  float r[3];  // scale, greatest bias, cap of scores
  std::memcpy(r, op->op_params, sizeof r);
  if (r[2] != 0) r[0] /= r[2];
  const Slopes slopes = slopes_of(q->ne[2], r[1]);
  const bool mask = op->src[3] != nullptr, sinks = op->src[4] != nullptr;
  const Constants constants = {.d = shape_of(op),
                               .a = shape_of(q),
                               .b = shape_of(op->src[1]),
                               .c = shape_of(op->src[2]),
                               .m = shape_of(op->src[3]),
                               .numbers = {mask, sinks, slopes.split},
                               .reals = {r[0], slopes.first, slopes.second, r[2]}};
  OwnKernel own = {"attention", text_of(constants), static_cast<std::uint32_t>(ggml_nrows(q)), 1,
                   256};
  return one(of_own(std::move(own), {result(), operand(0), operand(1), operand(2),
                                     mask ? operand(3) : result(), sinks ? operand(4) : result()}));
}

}  // namespace lathe_ggml
