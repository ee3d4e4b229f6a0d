// Owns making the types of tensors that only P64 containers have.
#include "plan/p64_blobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lathe/codegen/format.h"

namespace lathe::p64 {
namespace {

constexpr std::size_t kQ4KBytes = 144;  // d, dmin, 12 bytes of scales and mins, 128 of nibbles
constexpr std::size_t kSoaBytes = 160;  // nibbles, 8 scales, 8 mins
constexpr int kPerByte = 5;             // values of three states

std::uint16_t half_at(const std::byte* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}

// Six-bit scale and min of 32 values of a Q4_K block.
std::pair<int, int> scale_and_min(const std::byte* packed, int part) {
  const auto at = [&](int i) { return std::to_integer<int>(packed[i]); };
  if (part < 4) return {at(part) & 63, at(part + 4) & 63};
  return {(at(part + 4) & 15) | at(part - 4) >> 6 << 4, at(part + 4) >> 4 | at(part) >> 6 << 4};
}

// False: a product is beyond f16.
bool make_block(const std::byte* from, std::byte* to) {
  std::memcpy(to, from + 16, 128);
  const float d = f16_to_f32(half_at(from));
  const float dmin = f16_to_f32(half_at(from + 2));
  for (int part = 0; part < 8; ++part) {
    const auto [scale, min] = scale_and_min(from + 4, part);
    const std::uint16_t products[] = {f32_to_f16(d * static_cast<float>(scale)),
                                      f32_to_f16(dmin * static_cast<float>(min))};
    for (int i = 0; i < 2; ++i) {
      if (!std::isfinite(f16_to_f32(products[i]))) return false;
      std::memcpy(to + 128 + 16 * i + 2 * part, &products[i], sizeof products[i]);
    }
  }
  return true;
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
  std::vector<std::byte> out(q4_k.size() / kQ4KBytes * kSoaBytes);
  for (std::size_t block = 0; block < q4_k.size() / kQ4KBytes; ++block) {
    if (make_block(q4_k.data() + block * kQ4KBytes, out.data() + block * kSoaBytes)) continue;
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
