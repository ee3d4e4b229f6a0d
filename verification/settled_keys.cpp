// Owns the search for keys near a rounding boundary: norm and rotation in double precision, then
// two roundings of each value, from a little above and a little below it.
#include "verification/settled_keys.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

namespace lathe::verification {
namespace {

// Several times what norm and rotation in f32 lose, relative to the pair that rotates.
constexpr double kMargin = 0x1p-20;

struct Key {
  std::vector<double> values, margins;
};

Key turned_key(const KernelCase& c, const float* raw, const float* norm, const float* table) {
  const auto d = static_cast<std::size_t>(c.key.head_dim);
  Key key{{raw, raw + d}, std::vector<double>(d)};
  std::vector<double>& x = key.values;
  if (norm) {
    double squares = 0;
    for (double value : x) squares += value * value;
    const double factor = 1 / std::sqrt(squares / c.key.head_dim + c.key.epsilon);
    for (std::size_t e = 0; e < d; ++e) x[e] *= factor * norm[e];
  }
  for (std::size_t e = 0; e < d; ++e) key.margins[e] = kMargin * std::fabs(x[e]);
  const bool halves = c.key.pairing == Pairing::halves;
  const auto pairs = static_cast<std::size_t>(c.key.rotary / 2);
  for (std::size_t i = 0; i < pairs; ++i) {
    const std::size_t a = halves ? i : 2 * i, b = halves ? i + pairs : a + 1;
    const double angle = 2 * std::numbers::pi *
                         std::remainder(c.position * (static_cast<double>(table[2 * i]) +
                                                      static_cast<double>(table[2 * i + 1])),
                                        1.0);
    const double va = x[a], vb = x[b];
    x[a] = va * std::cos(angle) - vb * std::sin(angle);
    x[b] = va * std::sin(angle) + vb * std::cos(angle);
    key.margins[a] = key.margins[b] = kMargin * std::hypot(va, vb);
  }
  return key;
}

// Values of the key that might round either way; of a block, one is enough.
std::vector<std::size_t> unsettled(Format format, const Key& key) {
  const FormatRow& f = row(format);
  const auto block = static_cast<std::size_t>(f.block);
  std::vector<std::size_t> out;
  std::vector<float> high(block), low(block);
  std::vector<std::byte> from_high(static_cast<std::size_t>(f.bytes)), from_low(from_high);
  for (std::size_t at = 0; at < key.values.size(); at += block) {
    std::size_t greatest = 0;
    for (std::size_t j = 0; j < block; ++j) {
      const double value = key.values[at + j], margin = key.margins[at + j];
      high[j] = static_cast<float>(value + std::copysign(margin, value));
      low[j] = static_cast<float>(value - std::copysign(margin, value));
      if (std::fabs(high[j]) > std::fabs(high[greatest])) greatest = j;
    }
    f.pack(high.data(), f.block, from_high.data());
    f.pack(low.data(), f.block, from_low.data());
    const auto [one, other] = std::ranges::mismatch(from_high, from_low);
    if (one == from_high.end()) continue;
    const auto byte = static_cast<std::size_t>(one - from_high.begin());
    // The scale comes first: it is the greatest value's.
    out.push_back(at + (block == 1 ? 0 : byte < 2 ? greatest : byte - 2));
  }
  return out;
}

}  // namespace

void settle_keys(const KernelCase& kernel_case, std::vector<Bytes>& arguments) {
  const KernelKey& key = kernel_case.key;
  if (key.format == Format::f32) return;
  const auto floats = [&](std::size_t i) { return reinterpret_cast<float*>(arguments[i].data()); };
  const float* norm = key.qk_norm ? floats(2) : nullptr;
  const float* table = floats(key.qk_norm ? 3 : 1);
  const bool halves = key.pairing == Pairing::halves;
  const auto pairs = static_cast<std::size_t>(key.rotary / 2);
  for (int kv_head = 0; kv_head < key.kv_heads; ++kv_head) {
    float* raw = floats(0) + (key.heads + kv_head) * key.head_dim;
    for (int round = 0; round < 200; ++round) {
      const auto near = unsettled(key.format, turned_key(kernel_case, raw, norm, table));
      if (near.empty()) break;
      for (std::size_t e : near) {
        // Both of its pair move, so that it moves whatever the angle; by a sum, for one that is
        // small beside the other stays so by a factor.
        const std::size_t partner = e >= 2 * pairs ? e
                                    : halves       ? (e < pairs ? e + pairs : e - pairs)
                                                   : e ^ 1;
        raw[e] += 0.0137f;
        if (partner != e) raw[partner] -= 0.0071f;
      }
    }
  }
}

}  // namespace lathe::verification
