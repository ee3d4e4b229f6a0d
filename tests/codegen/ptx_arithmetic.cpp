// Owns what each arithmetic instruction of PTX computes from its operands.
#include "tests/codegen/ptx_arithmetic.h"

#include <bit>
#include <cmath>

#include "lathe/codegen/format.h"

namespace lathe::testing {
namespace {

using Bits = std::optional<std::uint64_t>;

float real(std::uint64_t v) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(v));
}
std::uint64_t bits(float v) {
  return std::bit_cast<std::uint32_t>(v);
}

template <class Number>
std::optional<bool> compared(const PtxInstruction& i, Number a, Number b) {
  if (i.has("eq")) return a == b;
  if (i.has("ne")) return a != b;
  if (i.has("lt")) return a < b;
  if (i.has("le")) return a <= b;
  if (i.has("gt")) return a > b;
  if (i.has("ge")) return a >= b;
  // Floats, true if one is no number.
  if (i.has("neu")) return !(a == b);
  if (i.has("nan")) return a != a || b != b;
  return {};
}

Bits set_predicate(const PtxInstruction& i, const std::uint64_t (&in)[4]) {
  const PtxType type = i.types.back();
  const std::uint64_t a = ptx_widened(in[0], type), b = ptx_widened(in[1], type);
  const std::optional<bool> result =
      type.kind == 'f'   ? compared(i, real(a), real(b))
      : type.kind == 's' ? compared(i, static_cast<std::int64_t>(a), static_cast<std::int64_t>(b))
                         : compared(i, a, b);
  if (!result) return {};
  const bool with = (in[2] & 1) != 0;
  if (i.has("and")) return *result && with;
  if (i.has("or")) return *result || with;
  if (i.has("xor")) return *result != with;
  return *result;
}

Bits real_arithmetic(const PtxInstruction& i, const std::uint64_t (&in)[4]) {
  const float a = real(in[0]), b = real(in[1]), c = real(in[2]);
  if (i.is("neg")) return in[0] ^ 0x80000000u;
  if (i.is("abs")) return in[0] & 0x7fffffffu;
  // Of a number and none, the number.
  if (i.is("min")) return bits(std::fmin(a, b));
  if (i.is("max")) return bits(std::fmax(a, b));
  if (!i.has("rn") || i.has("ftz")) return {};
  if (i.is("add")) return bits(a + b);
  if (i.is("sub")) return bits(a - b);
  if (i.is("mul")) return bits(a * b);
  if (i.is("div")) return bits(a / b);
  if (i.is("fma")) return bits(std::fma(a, b, c));
  if (i.is("sqrt")) return bits(std::sqrt(a));
  return {};
}

Bits converted(const PtxInstruction& i, std::uint64_t v) {
  if (i.types.size() != 2) return {};
  const PtxType to = i.types[0], from = i.types[1];
  if (to.kind != 'f' && from.kind != 'f') return ptx_widened(ptx_widened(v, from), to);
  if (from == PtxType{'f', 16})
    return to.bits == 32 ? Bits(bits(f16_to_f32(static_cast<std::uint16_t>(v)))) : Bits();
  if (from == PtxType{'f', 32}) {
    if (to.bits == 16 && i.has("rn")) return f32_to_f16(real(v));
    if (to.kind == 'f' && i.has("rni")) return bits(std::nearbyint(real(v)));
    if (to.kind == 's' && i.has("rzi")) {
      const float f = real(v);
      if (!(std::abs(f) < 2147483648.0f)) return {};
      return ptx_widened(static_cast<std::uint64_t>(static_cast<std::int64_t>(f)), to);
    }
    return {};
  }
  if (to != PtxType{'f', 32} || !i.has("rn")) return {};
  const std::uint64_t whole = ptx_widened(v, from);
  return from.kind == 's' ? bits(static_cast<float>(static_cast<std::int64_t>(whole)))
                          : bits(static_cast<float>(whole));
}

std::uint64_t permuted(std::uint64_t a, std::uint64_t b, std::uint64_t selector) {
  const std::uint64_t all = (b & 0xffffffffu) << 32 | (a & 0xffffffffu);
  std::uint64_t out = 0;
  for (int n = 0; n < 4; ++n) {
    const std::uint64_t nibble = selector >> (4 * n) & 15, byte = all >> (8 * (nibble & 7)) & 255;
    out |= (nibble & 8 ? (byte & 128 ? 255u : 0u) : byte) << (8 * n);
  }
  return out;
}

std::uint64_t reversed(std::uint64_t value, int count) {
  std::uint64_t out = 0;
  for (int n = 0; n < count; ++n) out |= (value >> n & 1) << (count - 1 - n);
  return out;
}

Bits whole_arithmetic(const PtxInstruction& i, const std::uint64_t (&in)[4]) {
  const PtxType type = i.types.back();
  const bool is_signed = type.kind == 's';
  const std::uint64_t a = ptx_widened(in[0], type), b = ptx_widened(in[1], type);
  if (i.is("add")) return a + b;
  if (i.is("sub")) return a - b;
  if (i.is("neg")) return 0 - a;
  if (i.is("and")) return a & b;
  if (i.is("or")) return a | b;
  if (i.is("xor")) return a ^ b;
  if (i.is("not")) return ~a;
  if (i.is("clz")) return static_cast<std::uint64_t>(std::countl_zero(a) - (64 - type.bits));
  if (i.is("brev")) return reversed(a, type.bits);
  if (i.is("min") || i.is("max")) {
    const bool less =
        is_signed ? static_cast<std::int64_t>(a) < static_cast<std::int64_t>(b) : a < b;
    return less == i.is("min") ? a : b;
  }
  if (i.is("shl")) return in[1] >= std::uint64_t(type.bits) ? 0 : a << in[1];
  if (i.is("shr")) {
    if (in[1] >= std::uint64_t(type.bits))
      return is_signed && static_cast<std::int64_t>(a) < 0 ? ~std::uint64_t{0} : 0;
    return is_signed ? static_cast<std::uint64_t>(static_cast<std::int64_t>(a) >> in[1])
                     : a >> in[1];
  }
  const bool adds = i.is("mad");
  if (i.is("mul") || adds) {
    if (type.bits > 32 && !i.has("lo")) return {};
    const std::uint64_t product = a * b;
    if (i.has("lo") || i.has("wide")) return product + (adds ? in[2] : 0);
    if (i.has("hi")) return (product >> type.bits) + (adds ? in[2] : 0);
    return {};
  }
  if (is_signed || b == 0) return {};
  if (i.is("div")) return a / b;
  if (i.is("rem")) return a % b;
  return {};
}

}  // namespace

std::uint64_t ptx_widened(std::uint64_t value, PtxType type) {
  if (type.bits >= 64) return value;
  const std::uint64_t mask = (std::uint64_t{1} << type.bits) - 1, low = value & mask;
  return type.kind == 's' && (low >> (type.bits - 1)) != 0 ? low | ~mask : low;
}

Bits ptx_arithmetic(const PtxInstruction& i, const std::uint64_t (&in)[4]) {
  if (i.types.empty()) return {};
  const PtxType type = i.types.back();
  if (i.is("setp")) return set_predicate(i, in);
  if (i.is("selp")) return (in[2] & 1) != 0 ? in[0] : in[1];
  if (i.is("cvt")) return converted(i, in[0]);
  if (i.is("cvta")) return in[0];
  if (i.is("prmt")) return permuted(in[0], in[1], in[2]);
  if (i.is("shf") && i.has("r") && i.has("wrap"))
    return ((in[1] & 0xffffffffu) << 32 | (in[0] & 0xffffffffu)) >> (in[2] & 31) & 0xffffffffu;
  const Bits out = type.kind == 'f' ? real_arithmetic(i, in) : whole_arithmetic(i, in);
  // Of mul.wide and mad.wide the result is twice as wide.
  if (!out || i.has("wide")) return out;
  return ptx_widened(*out, type.kind == 'p' ? PtxType{'b', 1} : type);
}

}  // namespace lathe::testing
