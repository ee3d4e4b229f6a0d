// Owns the KV cache's element access and the append of one position.
//
// Layout of K and of V: [position][kv_heads][head_dim], the positions one after the other or in
// pages (ops/kv_pages.h).
#pragma once

#include "ops/kv_pages.h"

namespace lathe::dev {

struct KvF32 {
  enum : int { bytes = 4 };
  LATHE_DEVICE void store(u8* cache, i64 i, f32 v) { reinterpret_cast<f32*>(cache)[i] = v; }
  // Values i and i + 1, i even.
  LATHE_DEVICE void load2(const u8* cache, i64 i, f32* out) {
    out[0] = reinterpret_cast<const f32*>(cache)[i];
    out[1] = reinterpret_cast<const f32*>(cache)[i + 1];
  }
  // Values i ... i + 7, i a multiple of 8 from a 16-byte-aligned row.
  LATHE_DEVICE void load8(const u8* cache, i64 i, f32* out) {
    const f32x4* p = reinterpret_cast<const f32x4*>(cache + i * 4);
    LATHE_UNROLL(2)
    for (int h = 0; h < 2; ++h) {
      const f32x4 v = p[h];
      out[4 * h] = v.x;
      out[4 * h + 1] = v.y;
      out[4 * h + 2] = v.z;
      out[4 * h + 3] = v.w;
    }
  }
};

struct KvF16 {
  enum : int { bytes = 2 };
  LATHE_DEVICE void store(u8* cache, i64 i, f32 v) {
    reinterpret_cast<u16*>(cache)[i] = f32_to_f16(v);
  }
  LATHE_DEVICE void load2(const u8* cache, i64 i, f32* out) {
    const u32 v = *reinterpret_cast<const u32*>(cache + i * 2);
    out[0] = f16_to_f32(v);
    out[1] = f16_to_f32(v >> 16);
  }
  LATHE_DEVICE void load8(const u8* cache, i64 i, f32* out) {
    const u32x4 v = *reinterpret_cast<const u32x4*>(cache + i * 2);
    const u32 words[4] = {v.x, v.y, v.z, v.w};
    LATHE_UNROLL(4)
    for (int j = 0; j < 4; ++j) {
      out[2 * j] = f16_to_f32(words[j]);
      out[2 * j + 1] = f16_to_f32(words[j] >> 16);
    }
  }
};

// `pages`: where the cache lies in pages, which kPaged says.
template <class Kv, bool kPaged>
LATHE_DEVICE void kv_append(const f32* k, const f32* v, const i32* position, const i32* pages,
                            u8* k_cache, u8* v_cache, int kv_heads, int head_dim, int warps) {
  const int i = block_x() * warps * kWarp + thread_index();
  const int width = kv_heads * head_dim;
  if (i >= width) return;
  int row = *position;
  if constexpr (kPaged) row = paged_row(pages, row);
  const i64 at = static_cast<i64>(row) * width + i;
  Kv::store(k_cache, at, k[i]);
  Kv::store(v_cache, at, v[i]);
}

#define LATHE_KVAPPEND_OP(name, Kv, kPaged)                                                     \
  LATHE_OP name(const f32* k, const f32* v, const i32* position, const i32* pages, u8* k_cache, \
                u8* v_cache, int kv_heads, int head_dim, int warps) {                           \
    kv_append<Kv, kPaged>(k, v, position, pages, k_cache, v_cache, kv_heads, head_dim, warps);  \
  }
LATHE_KVAPPEND_OP(kv_append_f32, KvF32, false)
LATHE_KVAPPEND_OP(kv_append_f16, KvF16, false)
LATHE_KVAPPEND_OP(kv_append_f32_paged, KvF32, true)
LATHE_KVAPPEND_OP(kv_append_f16_paged, KvF16, true)

}  // namespace lathe::dev
