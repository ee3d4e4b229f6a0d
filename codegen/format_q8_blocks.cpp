// Owns the CPU's codecs of the formats that engines round activations to: signed bytes with a
// scale, and with the sums that a product with weights that have offsets wants. The kernel
// `quantize` computes the same bits.
#include "codegen/block_codec.h"
#include "codegen/format_blocks.h"

namespace lathe {
namespace {

using namespace block_codec;

void unpack_bytes(const u8* codes, int count, float scale, float* out) {
  for (int j = 0; j < count; ++j)
    out[j] = scale * static_cast<float>(static_cast<std::int8_t>(codes[j]));
}
// Returns the sum of the codes.
int pack_bytes(const float* in, int count, float scale, u8* codes) {
  int sum = 0;
  for (int j = 0; j < count; ++j) {
    const int q = code(in[j], scale, -127, 127);
    codes[j] = static_cast<u8>(q);
    sum += q;
  }
  return sum;
}

// In the order of a warp: halves of what is left, one upon the other.
float sum_of_32(const float* in) {
  float sums[32];
  std::copy(in, in + 32, sums);
  for (int count = 16; count > 0; count /= 2)
    for (int j = 0; j < count; ++j) sums[j] = sums[j] + sums[j + count];
  return sums[0];
}

}  // namespace

// Halves d and d times the sum of the codes, then 32 signed bytes.
void unpack_q8_1(const std::byte* blocks, std::int64_t values, float* out) {
  for (std::int64_t b = 0; b < values / 32; ++b) {
    const u8* p = bytes(blocks) + b * 36;
    unpack_bytes(p + 4, 32, load_half(p), out + b * 32);
  }
}
void pack_q8_1(const float* in, std::int64_t values, std::byte* blocks) {
  for (std::int64_t b = 0; b < values / 32; ++b) {
    u8* p = bytes(blocks) + b * 36;
    const float d = store_half(p, greatest_magnitude(in + b * 32, 32) / 127);
    store_half(p + 2, d * static_cast<float>(pack_bytes(in + b * 32, 32, d, p + 4)));
  }
}

// 32 signed bytes, then halves d and the sum of the values before they were rounded.
void unpack_q8_1_tail(const std::byte* blocks, std::int64_t values, float* out) {
  for (std::int64_t b = 0; b < values / 32; ++b) {
    const u8* p = bytes(blocks) + b * 36;
    unpack_bytes(p, 32, load_half(p + 32), out + b * 32);
  }
}
void pack_q8_1_tail(const float* in, std::int64_t values, std::byte* blocks) {
  for (std::int64_t b = 0; b < values / 32; ++b) {
    u8* p = bytes(blocks) + b * 36;
    const float d = store_half(p + 32, greatest_magnitude(in + b * 32, 32) / 127);
    store_half(p + 34, sum_of_32(in + b * 32));
    pack_bytes(in + b * 32, 32, d, p);
  }
}

// d as an f32, 256 signed bytes, then the sum of each 16 of them.
void unpack_q8_k(const std::byte* blocks, std::int64_t values, float* out) {
  for (std::int64_t b = 0; b < values / 256; ++b) {
    const u8* p = bytes(blocks) + b * 292;
    float d;
    std::memcpy(&d, p, 4);
    unpack_bytes(p + 4, 256, d, out + b * 256);
  }
}
void pack_q8_k(const float* in, std::int64_t values, std::byte* blocks) {
  for (std::int64_t b = 0; b < values / 256; ++b) {
    const float* x = in + b * 256;
    u8* p = bytes(blocks) + b * 292;
    const float d = greatest_magnitude(x, 256) / 127;
    std::memcpy(p, &d, 4);
    for (int run = 0; run < 16; ++run) {
      const auto sum = static_cast<std::int16_t>(pack_bytes(x + 16 * run, 16, d, p + 4 + 16 * run));
      std::memcpy(p + 260 + 2 * run, &sum, 2);
    }
  }
}

}  // namespace lathe
