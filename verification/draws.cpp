// Owns how many draws of inputs make one comparison: as many as it takes for the error to be that
// of many values, which one that is off does not decide.
#include <algorithm>

#include "lathe/codegen/kernel_table.h"
#include "verification/kernel_case.h"

namespace lathe::verification {
namespace {

// Values of one draw whose errors have nothing to do with one another.
std::int64_t independent_values(const KernelCase& c) {
  const KernelKey& key = c.key;
  const std::int64_t count = std::max(c.count, 1);
  switch (key.type) {
    case KernelType::attention:  // its maxima are compared on their own
      return key.heads;
    case KernelType::attend_tokens:  // those of a head have the error of its weights in common
      return count * key.heads;
    case KernelType::append_tokens:
      if (key.format == Format::q8_0) return 2 * count * key.kv_heads * key.head_dim;
      break;
    default:
      break;
  }
  std::int64_t written = 0;
  for (const Param& param : row(key.type).params(key))
    if (param.access != Access::read)
      written += std::int64_t(argument_bytes(c, param)) / (is_f64(param) ? 8 : 4);
  // Those of a row have the errors of its few numbers in common, and of a column.
  if (key.type == KernelType::gemm)
    return std::min(written, std::int64_t{std::min(key.tokens, key.n)} * key.k);
  return written;
}

std::int64_t enough_values(const KernelKey& key) {
  // Gated products are many times as large in a few places as elsewhere: the error of few values is
  // that of the largest two or three.
  if (key.type == KernelType::matmul && key.gated) return 128;
  // Two rounded numbers a product make 0.6 of the bound, and of 32 values it may be 1.8 times that.
  if (key.type == KernelType::gemm) return 128;
  // A number on the border of two bytes may become either, 0.02 of what such numbers usually are.
  if (key.type == KernelType::append_tokens && key.format == Format::q8_0) return 1024;
  return 32;
}

}  // namespace

int draws(const KernelCase& kernel_case) {
  const KernelKey& key = kernel_case.key;
  if (row(key.type).bound == 0) return 1;
  const std::int64_t values = independent_values(kernel_case);
  const int few = static_cast<int>((enough_values(key) + values - 1) / values);
  // Codes have offsets: when the few values of a vector sum to nearly nothing, all rows cancel.
  return key.type == KernelType::matvec && key.k <= 256 ? std::max(few, 8) : few;
}

}  // namespace lathe::verification
