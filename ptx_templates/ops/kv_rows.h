// Owns the KV cache's rows as fused attention reads and writes them: loads of a lane's part of a
// row, decoding, rounding of a new row.
//
// K and V: [position][kv_heads][head_dim]. With one-byte values each position has after its values
// one f16 scale per 32 of them, in the same order, and is padded to 16 bytes (kv_position_bytes);
// a value is scale x byte, the scale of a new row the greatest magnitude of the 32 over 127, all
// rounded as Format::q8_0 is. head_dim is a multiple of 8, then of 32.
//
// Rows are loaded past the L1 cache: within one persistent launch they were written by other
// blocks.
#pragma once

#include "isa/isa.h"
#include "ops/launch_shapes.h"

namespace lathe::dev {

// 4, 8 or a multiple of 16 bytes from memory that other blocks write.
template <int kBytes>
LATHE_DEVICE void load_words(const u8* p, u32* out) {
  if constexpr (kBytes == 4) {
    out[0] = load_relaxed(reinterpret_cast<const u32*>(p));
  } else if constexpr (kBytes == 8) {
    const u64 v = load_relaxed(reinterpret_cast<const u64*>(p));
    out[0] = static_cast<u32>(v);
    out[1] = static_cast<u32>(v >> 32);
  } else {
    LATHE_UNROLL(2)
    for (int i = 0; i < kBytes / 16; ++i) {
      const u32x4 v = load_relaxed(reinterpret_cast<const u32x4*>(p) + i);
      out[4 * i] = v.x;
      out[4 * i + 1] = v.y;
      out[4 * i + 2] = v.z;
      out[4 * i + 3] = v.w;
    }
  }
}

// Words that hold kVec values of a row, with their scale where there is one.
template <class Kv, int kVec>
struct KvPart {
  enum : int { words = kVec * Kv::bytes / 4 + Kv::scaled, values = kVec * Kv::bytes };
  u32 word[words];
};

// `row` is where the lane's values begin, `scale` how far from there their scale lies.
template <class Kv, int kVec>
LATHE_DEVICE void load_part(const u8* row, int scale, KvPart<Kv, kVec>& part) {
  load_words<KvPart<Kv, kVec>::values>(row, part.word);
  if constexpr (Kv::scaled != 0)
    part.word[KvPart<Kv, kVec>::words - 1] =
        load_relaxed(reinterpret_cast<const u32*>(row + (scale & ~3)));
}
// The same from shared memory.
template <class Kv, int kVec>
LATHE_DEVICE void shared_part(const u8* row, int scale, KvPart<Kv, kVec>& part) {
  LATHE_UNROLL(8)
  for (int i = 0; i < KvPart<Kv, kVec>::values / 4; ++i)
    part.word[i] = reinterpret_cast<const u32*>(row)[i];
  if constexpr (Kv::scaled != 0)
    part.word[KvPart<Kv, kVec>::words - 1] =  // in both halves, for decode() takes either
        *reinterpret_cast<const u16*>(row + scale) * 0x10001u;
}

struct KvRowsF32 {
  enum : int { bytes = 4, scaled = 0 };
  template <int kVec>
  LATHE_DEVICE void decode(const KvPart<KvRowsF32, kVec>& part, int, f32* out) {
    LATHE_UNROLL(8)
    for (int i = 0; i < kVec; ++i) out[i] = as_f32(part.word[i]);
  }
  // Rounds a row in shared memory; a warp calls.
  LATHE_DEVICE void pack(const f32* row, u8* packed, int head_dim) {
    LATHE_UNROLL(4)
    for (int i = lane_index(); i < head_dim; i += kWarp) reinterpret_cast<f32*>(packed)[i] = row[i];
  }
};

struct KvRowsF16 {
  enum : int { bytes = 2, scaled = 0 };
  template <int kVec>
  LATHE_DEVICE void decode(const KvPart<KvRowsF16, kVec>& part, int, f32* out) {
    LATHE_UNROLL(4)
    for (int i = 0; i < kVec / 2; ++i) {
      out[2 * i] = f16_to_f32(part.word[i]);
      out[2 * i + 1] = f16_to_f32(part.word[i] >> 16);
    }
  }
  LATHE_DEVICE void pack(const f32* row, u8* packed, int head_dim) {
    LATHE_UNROLL(4)
    for (int i = lane_index(); i < head_dim; i += kWarp)
      reinterpret_cast<u16*>(packed)[i] = f32_to_f16(row[i]);
  }
};

struct KvRowsQ8 {
  enum : int { bytes = 1, scaled = 1 };
  template <int kVec>
  LATHE_DEVICE void decode(const KvPart<KvRowsQ8, kVec>& part, int scale, f32* out) {
    const f32 d = f16_to_f32(part.word[kVec / 4] >> ((scale & 2) * 8));
    LATHE_UNROLL(2)
    for (int i = 0; i < kVec / 4; ++i) {
      const u32 v = part.word[i] ^ 0x80808080u;
      LATHE_UNROLL(4)
      for (int j = 0; j < 4; ++j) {
        // The byte as the low mantissa bits of 2^23.
        const u32 bits = byte_permute(v, 0x4b000000u, 0x7440u + static_cast<u32>(j));
        out[4 * i + j] = (as_f32(bits) - 8388736.0f) * d;
      }
    }
  }
  LATHE_DEVICE void pack(const f32* row, u8* packed, int head_dim) {
    LATHE_UNROLL(8)
    for (int b = 0; b < head_dim / kWarp; ++b) {
      const f32 value = row[b * kWarp + lane_index()];
      const f32 magnitude = value < 0 ? -value : value;
      const f32 top = warp_max(magnitude >= 0 ? magnitude : 0.0f);  // of those that are numbers
      const u16 bits = f32_to_f16(divide(top, 127.0f));
      const f32 d = f16_to_f32(bits);
      f32 code = d != 0 ? round_even(divide(value, d)) : 0.0f;
      code = code > -127.0f ? code : -127.0f;
      code = code < 127.0f ? code : 127.0f;
      packed[b * kWarp + lane_index()] = static_cast<u8>(static_cast<int>(code));
      if (lane_index() == 0) reinterpret_cast<u16*>(packed + head_dim)[b] = bits;
    }
  }
};

// Copies a packed row in shared memory to its place in the cache; a warp calls. `at` is the
// position's first byte.
template <class Kv>
LATHE_DEVICE void store_row(const u8* packed, u8* at, int kv_head, int kv_heads, int head_dim) {
  const u32* from = reinterpret_cast<const u32*>(packed);
  u32* to = reinterpret_cast<u32*>(at + kv_head * head_dim * Kv::bytes);
  LATHE_UNROLL(2)
  for (int i = lane_index(); i < head_dim * Kv::bytes / 4; i += kWarp) to[i] = from[i];
  if constexpr (Kv::scaled != 0) {
    const u16* scales = reinterpret_cast<const u16*>(packed + head_dim);
    u16* scales_to = reinterpret_cast<u16*>(at + kv_heads * head_dim) + kv_head * head_dim / 32;
    if (lane_index() < head_dim / 32) scales_to[lane_index()] = scales[lane_index()];
  }
}

}  // namespace lathe::dev
