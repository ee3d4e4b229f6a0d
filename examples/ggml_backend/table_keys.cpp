// Owns the keys of kernels of Lathe's table.
#include "table_keys.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace lathe_ggml {

const char* format_of(ggml_type type) {
  switch (type) {
    case GGML_TYPE_F32:
      return "f32";
    case GGML_TYPE_F16:
      return "f16";
    case GGML_TYPE_BF16:
      return "bf16";
    case GGML_TYPE_Q4_0:
      return "q4_0";
    case GGML_TYPE_Q4_1:
      return "q4_1";
    case GGML_TYPE_Q5_0:
      return "q5_0";
    case GGML_TYPE_Q5_1:
      return "q5_1";
    case GGML_TYPE_Q8_0:
      return "q8_0";
    case GGML_TYPE_Q2_K:
      return "q2_k";
    case GGML_TYPE_Q3_K:
      return "q3_k";
    case GGML_TYPE_Q4_K:
      return "q4_k";
    case GGML_TYPE_Q5_K:
      return "q5_k";
    case GGML_TYPE_Q6_K:
      return "q6_k";
    case GGML_TYPE_IQ4_NL:
      return "iq4_nl";
    case GGML_TYPE_IQ4_XS:
      return "iq4_xs";
    case GGML_TYPE_MXFP4:
      return "mxfp4";
    default:
      return nullptr;
  }
}

std::string gemv_key(ggml_type type, std::int64_t length, std::int64_t rows) {
  const int warps = length < 2048 || rows >= 32768 ? 4 : 8;
  return std::string("gemv.") + format_of(type) + ".k" + std::to_string(length) + ".n" +
         std::to_string(rows) + ".w" + std::to_string(warps) + (rows >= 2048 ? ".r2" : "");
}

std::string rms_norm_key(std::int64_t length, std::int64_t rows, float epsilon) {
  const std::int64_t warps = std::clamp<std::int64_t>((length + 127) / 128, 1, 32);
  // A key has no dots in its numbers: nine digits and a power of ten.
  char text[32];
  std::snprintf(text, sizeof text, "%.8e", static_cast<double>(epsilon));
  const std::string digits = text[0] + std::string(text + 2, 8);
  const std::string number = digits + "e" + std::to_string(std::atoi(text + 11) - 8);
  return "rms_norm.f32.k" + std::to_string(length) + ".n" + std::to_string(rows) + ".w" +
         std::to_string(warps) + ".eps" + number;
}

std::string embed_key(ggml_type type, std::int64_t length, std::int64_t rows, std::int64_t count) {
  return std::string("embed.") + format_of(type) + ".k" + std::to_string(length) + ".n" +
         std::to_string(rows) + (count > 1 ? ".m" + std::to_string(count) : "");
}

std::string dequantize_key(ggml_type type, std::int64_t length, std::int64_t rows) {
  return std::string("dequantize.") + format_of(type) + ".k" + std::to_string(length) + ".n" +
         std::to_string(rows);
}

bool rows_are_whole(const ggml_tensor* matrix) {
  return matrix->nb[0] == ggml_type_size(matrix->type) &&
         matrix->nb[1] == ggml_row_size(matrix->type, matrix->ne[0]);
}

bool matrices_are_aligned(const ggml_tensor* tensor) {
  return tensor->view_offs % 16 == 0 && (tensor->ne[2] == 1 || tensor->nb[2] % 16 == 0) &&
         (tensor->ne[3] == 1 || tensor->nb[3] % 16 == 0);
}

std::int64_t bytes_to(const ggml_tensor* tensor, std::int64_t i1, std::int64_t i2,
                      std::int64_t i3) {
  return i1 * static_cast<std::int64_t>(tensor->nb[1]) +
         i2 * static_cast<std::int64_t>(tensor->nb[2]) +
         i3 * static_cast<std::int64_t>(tensor->nb[3]);
}

}  // namespace lathe_ggml
