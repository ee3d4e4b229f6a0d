// Owns the reading of tiles by lanes.
#include "tests/codegen/tile_reader.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace lathe::testing {
namespace {

// Numbers of one tile, by row and value; scales by row and run of 16 values.
struct Numbers {
  std::array<std::array<int, 256>, 16> code{};
  std::array<std::array<float, 16>, 16> scale{}, offset{};
};

constexpr int kIq4[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int kFp4[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

class Reader {
 public:
  Reader(Format format, int subs, std::span<const std::byte> tile)
      : format_(format), subs_(subs), tile_(tile) {}

  int byte(int at) const { return std::to_integer<int>(tile_[static_cast<std::size_t>(at)]); }
  float half(int at) const {
    return f16_to_f32(static_cast<std::uint16_t>(byte(at) | byte(at + 1) << 8));
  }

  // Element e of word v of sub-block s, as lane 4g + t reads it.
  int code(int lane, int s, int v, int e) const {
    switch (format_) {
      case Format::q8_0:
        return static_cast<std::int8_t>(byte(s * 512 + lane * 16 + 4 * v + e));
      case Format::q6_k: {
        const auto word = [&](int j) {
          const int q = 3 * s + j;
          return byte(q / 4 * 512 + lane * 16 + 4 * (q % 4) + e);
        };
        if (v < 3) return word(v) & 63;
        return word(0) >> 6 << 4 | word(1) >> 6 << 2 | word(2) >> 6;
      }
      case Format::q2_k:
        return pair(lane, s, v, e);
      case Format::q3_k:
        return pair(lane, s, v, e) | (byte(2 * 512 + lane * 16 + 4 * v + e) >> s & 1) << 2;
      default: {
        const int nibble = byte(s / 2 * 512 + lane * 16 + 4 * v + e) >> (s % 2 * 4) & 15;
        if (format_ == Format::iq4_nl || format_ == Format::iq4_xs) return kIq4[nibble];
        if (format_ == Format::mxfp4) return kFp4[nibble];
        if (format_ == Format::q4_0 || format_ == Format::q4_1 || format_ == Format::q4_k)
          return nibble;
        const int fifths = byte(subs_ / 2 * 512 + lane * 2 * subs_ + s / 2 * 4 + e);
        return nibble | (fifths >> (v + s % 2 * 4) & 1) << 4;
      }
    }
  }

  void scales(int g, int t, Numbers& out) const {
    switch (format_) {
      case Format::q4_k:
        return k_scales(2048, g, t, out);
      case Format::q5_k:
        return k_scales(2560, g, t, out);
      case Format::q6_k:
        for (int r = 0; r < 2; ++r)
          for (int run = 0; run < 4; ++run)
            row(out.scale, g, r, 4 * t + run) =
                half(3072 + 256 + g * 4 + 2 * r) * static_cast<float>(static_cast<std::int8_t>(
                                                       byte(3072 + (4 * g + t) * 8 + r * 4 + run)));
        return;
      case Format::q2_k:
        for (int r = 0; r < 2; ++r) {
          const int d = 1024 + 256 + g * 8 + 4 * r;
          for (int run = 0; run < 4; ++run) {
            const int both = byte(1024 + (4 * g + t) * 8 + r * 4 + run);
            row(out.scale, g, r, 4 * t + run) = half(d) * static_cast<float>(both & 15);
            row(out.offset, g, r, 4 * t + run) = half(d + 2) * static_cast<float>(both >> 4);
          }
        }
        return;
      case Format::q3_k:
        for (int r = 0; r < 2; ++r) {
          for (int run = 0; run < 4; ++run) {
            const int low = byte(1536 + (4 * g + t) * 4 + run) >> (4 * r) & 15;
            const int high = byte(1536 + 128 + (4 * g + t) * 2 + run % 2) >> (4 * r + run / 2 * 2);
            row(out.scale, g, r, 4 * t + run) =
                half(1536 + 192 + g * 4 + 2 * r) * static_cast<float>((low | (high & 3) << 4) - 32);
          }
        }
        return;
      case Format::iq4_xs:
        for (int b = 0; b < 4; ++b) {
          const int r = b / 2, p = b % 2, lane = 4 * g + t;
          const int low = byte(2048 + lane * 2 + p) >> (4 * r) & 15;
          const int high = byte(2048 + 64 + lane) >> (2 * b) & 3;
          for (int h = 0; h < 2; ++h)
            row(out.scale, g, r, 4 * t + 2 * p + h) =
                half(2048 + 96 + g * 4 + 2 * r) * static_cast<float>((low | high << 4) - 32);
        }
        return;
      case Format::mxfp4:
        for (int i = 0; t < subs_ / 2 && i < 8; ++i) {
          const int exponent = byte(256 * subs_ + (g * (subs_ / 2) + t) * 4 + i / 2);
          row(out.scale, g, i / 4, 4 * t + i % 4) = std::ldexp(1.0f, exponent - 128);
        }
        return;
      case Format::iq4_nl:
        return halves(256 * subs_, g, t, out.scale);
      case Format::q8_0:
        return halves(512 * subs_, g, t, out.scale);
      case Format::q4_0:
        return halves(256 * subs_, g, t, out.scale);
      case Format::q5_0:
        return halves(320 * subs_, g, t, out.scale);
      case Format::q4_1:
        halves(256 * subs_, g, t, out.scale);
        return halves(288 * subs_, g, t, out.offset);
      case Format::q5_1:
        halves(320 * subs_, g, t, out.scale);
        return halves(352 * subs_, g, t, out.offset);
      default:
        return;
    }
  }

 private:
  int pair(int lane, int s, int v, int e) const {
    return byte(s / 4 * 512 + lane * 16 + 4 * v + e) >> (s % 4 * 2) & 3;
  }

  using Runs = std::array<std::array<float, 16>, 16>;
  static float& row(Runs& runs, int g, int r, int run) {
    return runs[static_cast<std::size_t>(g + 8 * r)][static_cast<std::size_t>(run)];
  }

  void halves(int section, int g, int t, Runs& out) const {
    if (t >= subs_ / 2) return;
    for (int r = 0; r < 2; ++r)
      for (int p = 0; p < 2; ++p)
        for (int h = 0; h < 2; ++h)
          row(out, g, r, 4 * t + 2 * p + h) =
              half(section + (g * (subs_ / 2) + t) * 8 + (r * 2 + p) * 2);
  }

  void k_scales(int section, int g, int t, Numbers& out) const {
    const int lane = 4 * g + t,
              mins = byte(section + 128 + lane * 2) | byte(section + 128 + lane * 2 + 1) << 8;
    constexpr int kShift[] = {0, 8, 4, 12};
    for (int b = 0; b < 4; ++b) {
      const int r = b / 2, sub = 2 * t + b % 2, six = byte(section + lane * 4 + b);
      const int min = (mins >> kShift[b] & 15) | six >> 6 << 4;
      const float d = half(section + 192 + g * 8 + 4 * r);
      const float dmin = half(section + 192 + g * 8 + 4 * r + 2);
      for (int h = 0; h < 2; ++h) {
        row(out.scale, g, r, 2 * sub + h) = d * static_cast<float>(six & 63);
        row(out.offset, g, r, 2 * sub + h) = dmin * static_cast<float>(min);
      }
    }
  }

  const Format format_;
  const int subs_;
  const std::span<const std::byte> tile_;
};

float value_of(Format format, int code, float scale, float offset) {
  switch (format) {
    case Format::q4_0:
      return scale * static_cast<float>(code - 8);
    case Format::q5_0:
      return scale * static_cast<float>(code - 16);
    case Format::q6_k:
      return scale * static_cast<float>(code - 32);
    case Format::q3_k:
      return scale * static_cast<float>(code - 4);
    case Format::q8_0:
    case Format::iq4_nl:
    case Format::iq4_xs:
    case Format::mxfp4:
      return scale * static_cast<float>(code);
    case Format::q4_1:
    case Format::q5_1:
      return scale * static_cast<float>(code) + offset;
    default:
      return scale * static_cast<float>(code) - offset;
  }
}

std::vector<float> read_halves(Format format, int subs, std::span<const std::byte> tile) {
  const int width = 32 * subs;
  std::vector<float> out(static_cast<std::size_t>(16 * width));
  std::size_t at = 0;
  for (int chunk = 0; chunk < 2 * subs; ++chunk) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 8; ++i, at += 2) {
        std::uint16_t bits;
        std::memcpy(&bits, tile.data() + at, 2);
        const int row = lane / 4 + i / 4 * 8, column = 16 * chunk + lane % 4 * 4 + i % 4;
        out[static_cast<std::size_t>(row * width + column)] =
            format == Format::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
      }
    }
  }
  return out;
}

}  // namespace

std::vector<float> read_tile(Format format, int subs, std::span<const std::byte> tile) {
  if (format == Format::f16 || format == Format::bf16) return read_halves(format, subs, tile);
  const Reader reader(format, subs, tile);
  Numbers numbers;
  for (int g = 0; g < 8; ++g) {
    for (int t = 0; t < 4; ++t) {
      for (int s = 0; s < subs; ++s)
        for (int v = 0; v < 4; ++v)
          for (int e = 0; e < 4; ++e)
            numbers.code[static_cast<std::size_t>(v % 2 == 0 ? g : g + 8)]
                        [static_cast<std::size_t>(32 * s + (v < 2 ? 0 : 16) + 4 * t + e)] =
                reader.code(4 * g + t, s, v, e);
      reader.scales(g, t, numbers);
    }
  }
  std::vector<float> out;
  for (std::size_t row = 0; row < 16; ++row)
    for (std::size_t i = 0; i < static_cast<std::size_t>(32 * subs); ++i)
      out.push_back(value_of(format, numbers.code[row][i], numbers.scale[row][i / 16],
                             numbers.offset[row][i / 16]));
  return out;
}

}  // namespace lathe::testing
