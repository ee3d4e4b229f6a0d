// Owns causal attention of a chunk's tokens, after their keys and values are in the cache:
// y = softmax(q . K) V over the positions up to each token's own, by the matrix units, in f16 with
// sums in f32. The softmax is computed as the positions go by, 64 at a time.
//
// A block has one query head and 128 tokens, a warp 16 of them. Queries, keys and values lie in
// shared memory in f16; the weights of a warp's tile are, as they come, operand A of the second
// product.
#pragma once

#include "ops/kv_pages.h"
#include "ops/kv_rows.h"
#include "ops/math.h"
#include "ops/matmul_shapes.h"

namespace lathe::dev {

struct AttendTokens {
  const u8 *queries, *k_cache, *v_cache;
  u8* y;                     // operands of matmul
  int tokens, position;      // of the chunk: how many, and where the first stands
  int head, kv_head, token;  // of the block
  int heads, kv_heads, head_dim, window;
  int least, last;   // positions that its tokens see
  const i32* pages;  // of the sequence, where the cache lies in pages
};

enum : int { kAttendThreads = 256 };

// Starts to bring eight values of a row of the cache, which has this position, as f16; zeros where
// no token of the block looks.
template <class Kv>
LATHE_DEVICE void bring_halves(const AttendTokens& a, const u8* cache, int position, int cache_row,
                               int at, u8* to) {
  if (position < a.least || position > a.last) {
    *reinterpret_cast<u32x4*>(to) = {0, 0, 0, 0};
    return;
  }
  const int width = a.kv_heads * a.head_dim, first = a.kv_head * a.head_dim + at;
  const u8* row = cache + static_cast<i64>(cache_row) * kv_position_bytes(Kv::bytes, width);
  if constexpr (Kv::bytes == 2) {
    copy_async(to, row + first * 2);
  } else {
    KvPart<Kv, 8> part;
    const int scale = width - first + first / 32 * 2;
    load_part(row + first * Kv::bytes, scale, part);
    f32 v[8];
    Kv::decode(part, scale, v);
    *reinterpret_cast<u32x4*>(to) = {half2(v[0], v[1]), half2(v[2], v[3]), half2(v[4], v[5]),
                                     half2(v[6], v[7])};
  }
}
// `entries`: of page_entries(), where the cache lies in pages. Whole warps have rows or none: a
// head's values are a multiple of 16.
template <class Kv, bool kPaged>
LATHE_DEVICE void bring_positions(const AttendTokens& a, int first, int entries, u8* keys) {
  const int pieces = a.head_dim / 8;
  u8* values = keys + kAttendPositions * attend_query_bytes(a.head_dim);
  LATHE_UNROLL(4)
  for (int i = 0; i < ceil_div(kAttendPositions * pieces, int{kAttendThreads}); ++i) {
    const int piece = i * kAttendThreads + thread_index(), row = piece / pieces;
    const int at = piece % pieces * 8;
    if (row >= kAttendPositions) break;
    int place = first + row;
    if constexpr (kPaged) place = row_of_entries(entries, first, first + row);
    bring_halves<Kv>(a, a.k_cache, first + row, place, at,
                     keys + row * attend_query_bytes(a.head_dim) + at * 2);
    bring_halves<Kv>(a, a.v_cache, first + row, place, at,
                     values + row * attend_value_bytes(a.head_dim) + at * 2);
  }
  copy_async_group();
}

LATHE_DEVICE void load_queries(const AttendTokens& a, u8* queries) {
  const int pieces = a.head_dim / 8;
  LATHE_UNROLL(4)
  for (int i = 0; i < ceil_div(kAttendTokens * pieces, int{kAttendThreads}); ++i) {
    const int piece = i * kAttendThreads + thread_index(), row = piece / pieces;
    if (row >= kAttendTokens) break;
    const i64 token = min_int(a.token + row, a.tokens - 1);
    *reinterpret_cast<u32x4*>(queries + row * attend_query_bytes(a.head_dim) +
                              piece % pieces * 16) =
        *reinterpret_cast<const u32x4*>(a.queries + ((token * a.heads + a.head) * a.head_dim) * 2 +
                                        piece % pieces * 16);
  }
}

// What a lane has of its warp's 16 tokens: rows g and g + 8.
template <int kTiles>
struct AttendSums {
  f32 y[kTiles][4];  // of each 8 values of the head
  f32 maximum[2], total[2];
};

// q . K of the warp's tokens and 64 positions.
LATHE_DEVICE void score_positions(const u8* queries, const u8* keys, int head_dim,
                                  f32 (&score)[8][4]) {
  const int g = lane_index() / 4, t = lane_index() % 4, stride = attend_query_bytes(head_dim);
  LATHE_UNROLL(8)
  for (int j = 0; j < 8; ++j) score[j][0] = score[j][1] = score[j][2] = score[j][3] = 0;
  // The four values 4 t ... of each 16 are the lane's: any order of k does if both have it.
  const u8* q = queries + (warp_index() * 16 + g) * stride + 8 * t;
  const u8* key = keys + g * stride + 8 * t;
  LATHE_UNROLL(4)
  for (int step = 0; step < head_dim / 16; ++step) {
    const u64 upper = *reinterpret_cast<const u64*>(q + step * 32);
    const u64 lower = *reinterpret_cast<const u64*>(q + 8 * stride + step * 32);
    const u32 a0 = static_cast<u32>(upper), a1 = static_cast<u32>(lower);
    const u32 a2 = static_cast<u32>(upper >> 32), a3 = static_cast<u32>(lower >> 32);
    LATHE_UNROLL(8)
    for (int j = 0; j < 8; ++j) {
      const u64 b = *reinterpret_cast<const u64*>(key + j * 8 * stride + step * 32);
      mma_f16_k16(score[j], a0, a1, a2, a3, static_cast<u32>(b), static_cast<u32>(b >> 32));
    }
  }
}

// Takes away the positions that a token does not see.
LATHE_DEVICE void mask_positions(const AttendTokens& a, int first, f32 (&score)[8][4]) {
  const int g = lane_index() / 4, t = lane_index() % 4;
  LATHE_UNROLL(8)
  for (int j = 0; j < 8; ++j) {
    LATHE_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      const int own = a.position + a.token + warp_index() * 16 + g + i / 2 * 8;
      const int at = first + 8 * j + 2 * t + i % 2;
      if (at > own || (a.window > 0 && at <= own - a.window)) score[j][i] = -3.0e38f;
    }
  }
}

// Scores become weights, and what was summed before is scaled as the new maximum wants it.
template <int kTiles>
LATHE_DEVICE void weigh_positions(AttendSums<kTiles>& sums, int head_dim, f32 (&score)[8][4]) {
  constexpr f32 kLog2E = 1.44269504f;
  LATHE_UNROLL(2)
  for (int r = 0; r < 2; ++r) {
    f32 top = sums.maximum[r];
    LATHE_UNROLL(8)
    for (int j = 0; j < 8; ++j) {
      top = score[j][2 * r] > top ? score[j][2 * r] : top;
      top = score[j][2 * r + 1] > top ? score[j][2 * r + 1] : top;
    }
    LATHE_UNROLL(2)
    for (int mask = 1; mask <= 2; mask *= 2) {
      const f32 other = shuffle_xor(top, mask);
      top = other > top ? other : top;
    }
    // A row that has seen nothing yet has no maximum to speak of: what is masked stays without
    // weight.
    const f32 base = top < -1.0e38f ? 0.0f : -kLog2E * top;
    const f32 keep = power_of_two_near(fma(sums.maximum[r], kLog2E, base));
    f32 total = 0;
    LATHE_UNROLL(8)
    for (int j = 0; j < 8; ++j) {
      LATHE_UNROLL(2)
      for (int c = 0; c < 2; ++c) {
        f32& s = score[j][2 * r + c];
        s = power_of_two_near(fma(s, kLog2E, base));
        total = total + s;
      }
    }
    sums.maximum[r] = top;
    sums.total[r] = fma(sums.total[r], keep, total);
    LATHE_UNROLL(32)
    for (int d = 0; d < kTiles; ++d) {
      if (8 * d >= head_dim) break;
      sums.y[d][2 * r] = sums.y[d][2 * r] * keep;
      sums.y[d][2 * r + 1] = sums.y[d][2 * r + 1] * keep;
    }
  }
}

template <int kTiles>
LATHE_DEVICE void add_values(const u8* values, int head_dim, const f32 (&weight)[8][4],
                             AttendSums<kTiles>& sums) {
  const int lane = lane_index(), stride = attend_value_bytes(head_dim);
  LATHE_UNROLL(4)
  for (int step = 0; step < 4; ++step) {
    const f32(&w0)[4] = weight[2 * step];
    const f32(&w1)[4] = weight[2 * step + 1];
    const u32 a0 = half2(w0[0], w0[1]), a1 = half2(w0[2], w0[3]);
    const u32 a2 = half2(w1[0], w1[1]), a3 = half2(w1[2], w1[3]);
    const u8* row = values + (16 * step + lane % 16) * stride + lane / 16 * 16;
    LATHE_UNROLL(16)
    for (int d = 0; d < kTiles / 2; ++d) {
      if (16 * d >= head_dim) break;
      u32 b[4];
      load_transposed(b, row + d * 32);
      mma_f16_k16(sums.y[2 * d], a0, a1, a2, a3, b[0], b[1]);
      mma_f16_k16(sums.y[2 * d + 1], a0, a1, a2, a3, b[2], b[3]);
    }
  }
}

// The results as operands, and zeros behind the last head's. A lane has two neighbouring values,
// and so has the one beside it: of the four, operands want the first and third as a pair, and the
// others.
template <int kTiles>
LATHE_DEVICE void store_attended(const AttendTokens& a, AttendSums<kTiles>& sums) {
  const int g = lane_index() / 4, t = lane_index() % 4, k = a.heads * a.head_dim;
  const int width = operand_width(k), odd = t & 1;
  const u32 bytes = odd ? 0x3276u : 0x5410u;
  LATHE_UNROLL(2)
  for (int r = 0; r < 2; ++r) {
    f32 total = sums.total[r];
    total = total + shuffle_xor(total, 1);
    total = total + shuffle_xor(total, 2);
    const f32 factor = divide(0.0625f, total);
    const i64 token = a.token + warp_index() * 16 + g + 8 * r;
    const bool there = token < a.tokens;
    u8* to = a.y + token * width * 2;
    LATHE_UNROLL(32)
    for (int d = 0; d < kTiles; ++d) {
      if (8 * d >= a.head_dim) break;
      const u32 own = half2(sums.y[d][2 * r] * factor, sums.y[d][2 * r + 1] * factor);
      const u32 pair = byte_permute(own, shuffle_xor(own, 1), bytes);
      const int at = operand_at(a.head * a.head_dim + 8 * d + 2 * (t - odd) + odd);
      if (there) *reinterpret_cast<u32*>(to + at * 2) = pair;
    }
    if (!there || a.head + 1 < a.heads) continue;
    LATHE_UNROLL(4)
    for (int i = k + t; i < width; i += 4) reinterpret_cast<u16*>(to)[operand_at(i)] = 0;
  }
}

template <class Kv, bool kPaged, int kTiles>
LATHE_DEVICE void attend_tokens_block(const AttendTokens& a) {
  u8* queries = shared_memory();
  u8* positions = queries + kAttendTokens * attend_query_bytes(a.head_dim);
  int first = a.least / kAttendPositions * kAttendPositions;
  int entries = 0;
  if constexpr (kPaged) entries = page_entries(a.pages, first, a.least, a.last);
  bring_positions<Kv, kPaged>(a, first, entries, positions);
  if constexpr (kPaged)  // a tile ahead, so that nothing waits for them
    entries = page_entries(a.pages, first + kAttendPositions, a.least, a.last);
  load_queries(a, queries);
  AttendSums<kTiles> sums;
  LATHE_UNROLL(32)
  for (int d = 0; d < kTiles; ++d) sums.y[d][0] = sums.y[d][1] = sums.y[d][2] = sums.y[d][3] = 0;
  LATHE_UNROLL(2)
  for (int r = 0; r < 2; ++r) {
    sums.maximum[r] = -3.0e38f;
    sums.total[r] = 0;
  }
  const int own = a.position + a.token + warp_index() * 16;  // of the warp's first token
  LATHE_UNROLL(1)
  for (int turn = 0; first <= a.last; first += kAttendPositions, turn ^= 1) {
    copy_async_wait<0>();
    block_barrier();  // these positions are there, and all are done with those before
    u8* keys = positions + turn * attend_positions_bytes(a.head_dim);
    if (first + kAttendPositions <= a.last)
      bring_positions<Kv, kPaged>(a, first + kAttendPositions, entries,
                                  positions + (turn ^ 1) * attend_positions_bytes(a.head_dim));
    if constexpr (kPaged)
      entries = page_entries(a.pages, first + 2 * kAttendPositions, a.least, a.last);
    if (first > own + 15) continue;
    f32 score[8][4];
    score_positions(queries, keys, a.head_dim, score);
    if (first + kAttendPositions > own || (a.window > 0 && first <= own + 15 - a.window))
      mask_positions(a, first, score);
    weigh_positions<kTiles>(sums, a.head_dim, score);
    add_values<kTiles>(keys + kAttendPositions * attend_query_bytes(a.head_dim), a.head_dim, score,
                       sums);
  }
  store_attended<kTiles>(a, sums);
}

// chunk: how many tokens, the position of the first, the cache's row of position 0, or the entry of
// `pages` that has it. The last tokens' blocks come first, for they have the most positions.
template <class Kv, bool kPaged>
LATHE_DEVICE void attend_tokens(const u8* queries, const i32* chunk, const i32* pages,
                                const u8* k_cache, const u8* v_cache, u8* y, int heads,
                                int kv_heads, int head_dim, int window, int most) {
  const int tokens = chunk[0];
  const int token = (ceil_div(most, kAttendTokens) - 1 - block_y()) * kAttendTokens;
  if (token >= tokens) return;
  const int head = block_x(), position = chunk[1];
  if constexpr (kPaged) {
    pages += chunk[2];
  } else {
    const i64 before =
        static_cast<i64>(chunk[2]) * kv_position_bytes(Kv::bytes, kv_heads * head_dim);
    k_cache += before;
    v_cache += before;
  }
  const int least = window > 0 ? max_int(0, position + token - window + 1) : 0;
  const int last = position + min_int(token + kAttendTokens, tokens) - 1;
  const AttendTokens a = {
      queries, k_cache, v_cache,  y,        tokens, position, head, head / (heads / kv_heads),
      token,   heads,   kv_heads, head_dim, window, least,    last, pages};
  if (head_dim <= 64)
    attend_tokens_block<Kv, kPaged, 8>(a);
  else if (head_dim <= 128)
    attend_tokens_block<Kv, kPaged, 16>(a);
  else
    attend_tokens_block<Kv, kPaged, 32>(a);
}

#define LATHE_ATTENDED_OP(name, Kv, kPaged)                                                  \
  LATHE_OP name(const u8* queries, const i32* chunk, const i32* pages, const u8* k_cache,    \
                const u8* v_cache, u8* y, int heads, int kv_heads, int head_dim, int window, \
                int most) {                                                                  \
    attend_tokens<Kv, kPaged>(queries, chunk, pages, k_cache, v_cache, y, heads, kv_heads,   \
                              head_dim, window, most);                                       \
  }
LATHE_ATTENDED_OP(attend_tokens_f32, KvRowsF32, false)
LATHE_ATTENDED_OP(attend_tokens_f16, KvRowsF16, false)
LATHE_ATTENDED_OP(attend_tokens_q8_0, KvRowsQ8, false)
LATHE_ATTENDED_OP(attend_tokens_f32_paged, KvRowsF32, true)
LATHE_ATTENDED_OP(attend_tokens_f16_paged, KvRowsF16, true)
LATHE_ATTENDED_OP(attend_tokens_q8_0_paged, KvRowsQ8, true)

}  // namespace lathe::dev
