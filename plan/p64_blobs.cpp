// Owns making the types of tensors that only P64 containers have.
#include "plan/p64_blobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lathe/codegen/format.h"

namespace lathe::p64 {
namespace {

constexpr int kPerByte = 5;  // values of three states

// False: a product is beyond f16. A block ends in 16 of them.
bool is_finite(const std::byte* block) {
  std::uint16_t products[16];
  std::memcpy(products, block + 128, sizeof products);
  return std::ranges::all_of(products, [](auto bits) { return std::isfinite(f16_to_f32(bits)); });
}

// Calls use(values) with each row, unpacked.
template <typename Use>
void for_each_row(const GgufTensor& tensor, const FormatRow& format,
                  std::span<const std::byte> blocks, Use use) {
  std::vector<float> values(static_cast<std::size_t>(tensor.k()));
  const auto bytes = static_cast<std::size_t>(row_bytes(format.format, tensor.k()));
  for (std::int64_t i = 0; i < tensor.rows(); ++i) {
    format.unpack(blocks.data() + static_cast<std::size_t>(i) * bytes, tensor.k(), values.data());
    use(std::span<const float>(values));
  }
}

}  // namespace

Result<std::vector<std::byte>> make_q4_k_soa(const GgufTensor& tensor,
                                             std::span<const std::byte> q4_k) {
  const auto block_bytes = static_cast<std::size_t>(row(Format::q4_k_soa).bytes);
  const std::int64_t values = tensor.k() * tensor.rows();
  std::vector<std::byte> out(static_cast<std::size_t>(row_bytes(Format::q4_k_soa, values)));
  q4_k_to_soa(q4_k.data(), values, out.data());
  for (std::size_t block = 0; block < out.size() / block_bytes; ++block) {
    if (is_finite(out.data() + block * block_bytes)) continue;
    return Error{Code::unsupported,
                 fmt::format("tensor '{}' has a scale in block {} that f16 does not hold",
                             tensor.name, block),
                 {}};
  }
  return out;
}

Result<std::vector<std::byte>> make_ternary(const GgufTensor& tensor,
                                            std::span<const std::byte> blocks) {
  LATHE_ASSIGN(const Format format, format_by_ggml_type(tensor.ggml_type));
  const std::int64_t count = tensor.k() * tensor.rows();
  double sum = 0;
  for_each_row(tensor, row(format), blocks, [&](std::span<const float> values) {
    for (const float value : values) sum += std::abs(static_cast<double>(value));
  });
  const auto scale = static_cast<float>(sum / static_cast<double>(count));
  if (!std::isfinite(scale)) {
    return Error{Code::unsupported,
                 fmt::format("tensor '{}' has values that are not finite", tensor.name),
                 {}};
  }
  std::vector<std::byte> out(sizeof scale);
  out.reserve(sizeof scale + static_cast<std::size_t>((count + kPerByte - 1) / kPerByte));
  std::memcpy(out.data(), &scale, sizeof scale);
  int byte = 0;
  int place = 1;  // of the next digit: a power of 3
  const auto flush = [&] {
    out.push_back(static_cast<std::byte>(byte));
    byte = 0;
    place = 1;
  };
  for_each_row(tensor, row(format), blocks, [&](std::span<const float> values) {
    for (const float value : values) {
      const float trit = scale > 0 ? std::clamp(std::nearbyint(value / scale), -1.0f, 1.0f) : 0;
      byte += place * (static_cast<int>(trit) + 1);
      place *= 3;
      if (place == 243) flush();
    }
  });
  if (place != 1) flush();
  return out;
}

}  // namespace lathe::p64
