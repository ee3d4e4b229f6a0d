// Owns what comes between the projections of a chunk's tokens and their attention: norm and
// rotation of queries and keys, the append of keys and values to the cache. As ops/attend.h does it
// for one token; the queries, times the scale, go on in f16.
#pragma once

#include "ops/attend_vectors.h"
#include "ops/kv_pages.h"

namespace lathe::dev {

// A warp has one head of one token: of the queries, then the keys, then the values. The tokens are
// those of a chunk, one after the other, or have sequences of their own: then `rows` says of each
// the position and the cache's row of its sequence's position 0. Of a cache in pages, which kPaged
// says, it is the entry of `pages` where the sequence's begin; likewise what the chunk says.
template <class Kv, bool kPaged>
LATHE_DEVICE void append_tokens(const f32* qkv, const f32* q_norm, const f32* k_norm,
                                const f32* frequencies, const i32* chunk, const i32* rows,
                                const i32* pages, u8* k_cache, u8* v_cache, u8* queries,
                                const AttendNumbers& n, int warps) {
  const int token = block_y(), head = block_x() * warps + warp_index(), d = n.head_dim;
  if (token >= chunk[0] || head >= n.heads + 2 * n.kv_heads) return;
  const i64 position = rows ? rows[2 * token] : static_cast<i64>(chunk[1]) + token;
  int place = 0;
  if constexpr (kPaged)
    place = paged_row(pages + (rows ? rows[2 * token + 1] : chunk[2]), static_cast<int>(position));
  u8* own = shared_memory() + warp_index() * append_warp_bytes(Kv::bytes, d);
  f32* values = reinterpret_cast<f32*>(own);
  const Exchange e = {0, 0, nullptr};
  const i64 width = static_cast<i64>(n.heads + 2 * n.kv_heads) * d;
  const f32 squares = receive_head(e, qkv + token * width + head * d, values, d);
  const bool is_query = head < n.heads, is_key = !is_query && head < n.heads + n.kv_heads;
  if (is_query || is_key) {
    const f32* norm = is_query ? q_norm : k_norm;
    const LanePairs pairs = lane_pairs(n, frequencies, static_cast<int>(position));
    f32 weights[2 * kAttendPairs];
    lane_weights(norm, n, weights);
    turn_head(values, pairs, weights, norm != nullptr, squares, is_query ? n.scale : 1.0f, n);
  }
  if (is_query) {
    u32* to =
        reinterpret_cast<u32*>(queries) + (static_cast<i64>(token) * n.heads + head) * (d / 2);
    LATHE_UNROLL(4)
    for (int i = lane_index(); i < d / 2; i += kWarp)
      to[i] = half2(values[2 * i], values[2 * i + 1]);
    return;
  }
  u8* packed = own + round_up(d * 4, 16);
  Kv::pack(values, packed, d);
  warp_barrier();
  const int kv_head = is_key ? head - n.heads : head - n.heads - n.kv_heads;
  const i64 row = kPaged ? place : position + (rows ? rows[2 * token + 1] : chunk[2]);
  store_row<Kv>(packed,
                (is_key ? k_cache : v_cache) + row * kv_position_bytes(Kv::bytes, n.kv_heads * d),
                kv_head, n.kv_heads, d);
}

#define LATHE_APPEND_OP(name, Kv, kPaged)                                                      \
  LATHE_OP name(const f32* qkv, const f32* q_norm, const f32* k_norm, const f32* frequencies,  \
                const i32* chunk, const i32* rows, const i32* pages, u8* k_cache, u8* v_cache, \
                u8* queries, int heads, int kv_heads, int head_dim, int rotary, int halves,    \
                int warps, f32 epsilon, f32 scale) {                                           \
    append_tokens<Kv, kPaged>(                                                                 \
        qkv, q_norm, k_norm, frequencies, chunk, rows, pages, k_cache, v_cache, queries,       \
        {heads, kv_heads, head_dim, rotary, halves, 0, 1, epsilon, scale}, warps);             \
  }
LATHE_APPEND_OP(append_tokens_f32, KvRowsF32, false)
LATHE_APPEND_OP(append_tokens_f16, KvRowsF16, false)
LATHE_APPEND_OP(append_tokens_q8_0, KvRowsQ8, false)
LATHE_APPEND_OP(append_tokens_f32_paged, KvRowsF32, true)
LATHE_APPEND_OP(append_tokens_f16_paged, KvRowsF16, true)
LATHE_APPEND_OP(append_tokens_q8_0_paged, KvRowsQ8, true)

}  // namespace lathe::dev
