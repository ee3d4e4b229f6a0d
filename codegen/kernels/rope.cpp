// Owns the rope row: rotary position embedding in place. Device code: ptx_templates/ops/rope.h.
#include "codegen/kernels/rows.h"

#include <numbers>

namespace lathe {
namespace {

Result<void> check(const KernelKey& key) {
  LATHE_TRY(in_range("heads", key.heads, 1, 1024));
  LATHE_TRY(in_range("head_dim", key.head_dim, 2, 1024));
  LATHE_TRY(in_range("rotary", key.rotary, 2, key.head_dim));
  LATHE_TRY(in_range("warps", key.warps, 1, 32));
  if (key.rotary % 2)
    return invalid("rotary is {}; values rotate in pairs, so it must be even", key.rotary);
  return {};
}

Geometry geometry(const KernelKey& key) {
  return per_element(key.heads * key.rotary / 2, key.warps);
}

std::vector<Param> params(const KernelKey& key) {
  return {{"x", Access::read_write, Element::f32, key.heads * key.head_dim * 4ll, 16, false, false},
          position_in(),
          vector_in("frequencies", key.rotary)};
}

OpCall call(const KernelKey& key) {
  OpCall call{"ops/rope.h", key.pairing == Pairing::halves ? "rope_halves" : "rope_adjacent",
              parameters(3)};
  for (int value : {key.heads, key.head_dim, key.rotary, key.warps})
    call.arguments.push_back(integer(value));
  return call;
}

Cost cost(const KernelKey& key) {
  const std::int64_t values = static_cast<std::int64_t>(key.heads) * key.rotary;
  return {values * 4 + key.rotary * 4ll + 4, values * 4, values * 3};
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int) {
  if (part != 0) return;
  auto* x = static_cast<float*>(arguments[0]);
  const double position = *static_cast<const std::int32_t*>(arguments[1]);
  const auto* table = static_cast<const float*>(arguments[2]);
  const int pairs = key.rotary / 2;
  for (int pair = 0; pair < pairs; ++pair) {
    const double turns = position * (static_cast<double>(table[2 * pair]) + table[2 * pair + 1]);
    const double angle = 2 * std::numbers::pi * (turns - std::nearbyint(turns));
    const double sine = std::sin(angle), cosine = std::cos(angle);
    for (int head = 0; head < key.heads; ++head) {
      float* a = x + head * key.head_dim + (key.pairing == Pairing::halves ? pair : 2 * pair);
      float* b = key.pairing == Pairing::halves ? a + pairs : a + 1;
      const double va = *a, vb = *b;
      *a = static_cast<float>(va * cosine - vb * sine);
      *b = static_cast<float>(va * sine + vb * cosine);
    }
  }
}

const char* text_template(const KernelKey&) {
  return "rope";
}

}  // namespace

const KernelRow kRopeRow = {
    KernelType::rope,
    "rope",
    "rotary position embedding, in place",
    "heads head_dim rotary warps pairing",
    "f32",
    check,
    geometry,
    params,
    call,
    cost,
    oracle,
    1e-6,
    "angle good to f32 at any position, sine and cosine to 2 ulp, two roundings per value",
    text_template};

}  // namespace lathe
