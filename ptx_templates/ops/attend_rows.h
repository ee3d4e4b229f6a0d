// Owns attention of the tokens of a batch, each against the positions of its own sequence, which
// its own key and value belong to already: y = softmax(q . K) V, as operands of matmul. As
// ops/attend.h does it for one token in a long context; the queries are there.
//
// The work is cut into pieces, a KV head and one split of a token's positions, and blocks take
// pieces by turns. How a token is cut depends on the positions it sees, so that its result has the
// same bits in any batch.
#pragma once

#include "ops/attend.h"
#include "ops/matmul_shapes.h"

namespace lathe::dev {

// What a token has of everything.
struct RowOperands {
  enum : int { appends = 0, paged = 0 };
  const u8* queries;            // f16, heads x head_dim, times the scale
  const u8 *k_cache, *v_cache;  // from its sequence's position 0 on; in pages, from the first page
  f32* partial;                 // as AttendOperands has them
  u32* counters;
  u16* y;  // operands of all tokens, in the order of few_tokens() `few`
  int token, width, few;
};

struct PagedRowOperands : RowOperands {
  enum : int { paged = 1 };
  const i32* pages;  // of its sequence
};

// For attend_split(): queries of f16 to shared memory, in f32.
template <class Kv>
LATHE_DEVICE void attend_vectors(const Exchange&, const RowOperands& o, const AttendNumbers& n, int,
                                 const AttendPart& part, int warps, int stride, f32* queries, f32*,
                                 u8*) {
  const int pairs = stride / 2, threads = warps * kWarp;
  const u32* from = reinterpret_cast<const u32*>(o.queries) + part.first * (n.head_dim / 2);
  LATHE_UNROLL(4)
  for (int step = 0; step < ceil_div(part.queries * pairs, threads); ++step) {
    const int i = step * threads + thread_index(), at = i % pairs;
    if (i >= part.queries * pairs) break;
    const u32 pair = at < n.head_dim / 2 ? from[i / pairs * (n.head_dim / 2) + at] : 0;
    queries[2 * i] = f16_to_f32(pair);
    queries[2 * i + 1] = f16_to_f32(pair >> 16);
  }
}

struct RowResults {
  const RowOperands& o;
  int first;
};
LATHE_DEVICE u16* result_at(const RowOperands& o, int i) {
  return o.y + operand_place(o.token, i, o.width, o.few);
}
LATHE_DEVICE RowResults results_from(const RowOperands& o, int first) {
  return {o, first};
}
LATHE_DEVICE u16* mean_at(const RowOperands& o, int i) {
  return o.y + operand_mean_place(o.token, i, o.width, o.few);
}
// A KV head has a multiple of 16 values; the lanes that have 16 in a row make their mean.
template <class Value>
LATHE_DEVICE void send_results(const Exchange&, const RowResults& to, int values, int threads,
                               Value value) {
  LATHE_UNROLL(1)
  for (int before = 0; before < values; before += threads) {
    const int i = before + thread_index(), at = to.first + i;
    const bool there = i < values;
    const u32 operand = f32_to_f16(value(min_int(i, values - 1)) * 0.0625f);
    if (there) *result_at(to.o, at) = static_cast<u16>(operand);
    f32 sum = f16_to_f32(operand);
    LATHE_UNROLL(4)
    for (int mask = 1; mask < 16; mask *= 2) sum = sum + shuffle_xor(sum, mask);
    if (there && i % 16 == 0) *mean_at(to.o, at) = f32_to_f16(sum * 0.0625f);
  }
}

// Zeros behind the last head's results, up to whole pairs of sub-blocks.
LATHE_DEVICE void end_row(const RowOperands& o, int k, int threads) {
  LATHE_UNROLL(1)
  for (int i = k + thread_index(); i < o.width; i += threads) {
    *result_at(o, i) = 0;
    if (i % 16 == 0) *mean_at(o, i) = 0;
  }
}

// A split of a token, and what `rows` says of the token; no splits when there is none.
struct RowSplit {
  int token, split, splits;
  int position, place;
};

// The split that comes after so many others, token by token. All lanes call.
LATHE_DEVICE RowSplit row_split(const i32* rows, int tokens, int before, const AttendNumbers& n,
                                int value_bytes) {
  static_assert(kFewTokens <= int{kWarp}, "a lane for each token");
  const int lane = lane_index();
  i32 position = 0, place = 0;
  u32 own = 0;
  if (lane < tokens) {
    position = rows[2 * lane];
    place = rows[2 * lane + 1];
    const int seen = n.window > 0 ? min_int(n.window, position + 1) : position + 1;
    own = static_cast<u32>(attend_row_splits(seen, n.head_dim, value_bytes, n.splits));
  }
  u32 sum = own;  // with those of the lanes before
  LATHE_UNROLL(5)
  for (int step = 1; step < kWarp; step *= 2) {
    const u32 other = shuffle(sum, (lane - step) & (kWarp - 1));
    if (lane >= step) sum += other;
  }
  // The first lane that counts more.
  const u32 after = ballot(static_cast<int>(sum) > before);
  if (after == 0) return {0, 0, 0, 0, 0};
  const u32 lowest = after & (0u - after);  // a power of two, and so its exponent
  const int token = static_cast<int>(as_u32(static_cast<f32>(lowest)) >> 23) - 127;
  const int splits = static_cast<int>(shuffle(own, token));
  return {token, before - static_cast<int>(shuffle(sum, token)) + splits, splits,
          static_cast<i32>(shuffle(static_cast<u32>(position), token)),
          static_cast<i32>(shuffle(static_cast<u32>(place), token))};
}

template <class Kv, bool kMatrix, class Operands>
LATHE_DEVICE void attend_row_split(const Operands& o, const AttendNumbers& n, const AttendShape& s,
                                   const RowSplit& row, int kv_head, int warps) {
  const Exchange e = {0, 0, nullptr};
  if constexpr (kMatrix)
    attend_matrix_split_of<0>(e, o, n, s, row.position, kv_head, row.split, row.splits, warps,
                              shared_memory());
  else
    attend_split_of<Kv, 0>(e, o, n, s, row.position, kv_head, row.split, row.splits, warps,
                           shared_memory());
}

// `blocks` blocks, any number, for up to `most` tokens. rows: of each token its position, and the
// caches' row of its sequence's position 0, or the entry of `pages` where the sequence's begin.
// partial and counters: attend's for each token. kMatrix: by the matrix units.
template <class Kv, bool kPaged, bool kMatrix>
LATHE_DEVICE void attend_rows(const u8* queries, const i32* chunk, const i32* rows,
                              const i32* pages, const u8* k_cache, const u8* v_cache, f32* partial,
                              i32* counters, u16* y, const AttendNumbers& n, int most, int blocks,
                              int warps) {
  const AttendShape s = kMatrix ? attend_matrix_shape(n.heads, n.kv_heads, n.head_dim)
                                : attend_shape(n.heads, n.kv_heads, n.head_dim, Kv::bytes);
  const int tokens = min_int(*chunk, most), k = n.heads * n.head_dim;
  const i64 stride = kv_position_bytes(Kv::bytes, n.kv_heads * n.head_dim);
  const i64 floats = static_cast<i64>(n.kv_heads) * n.splits *
                     attend_partial_floats(n.heads / n.kv_heads, n.head_dim);
  LATHE_UNROLL(1)
  for (int piece = block_x();; piece += blocks) {
    const RowSplit row = row_split(rows, tokens, piece / n.kv_heads, n, Kv::bytes);
    if (row.splits == 0) return;
    if (piece >= blocks) block_barrier();
    const int kv_head = piece % n.kv_heads;
    const i64 token = row.token, first = kPaged ? 0 : row.place * stride;
    const RowOperands o = {queries + token * k * 2,
                           k_cache + first,
                           v_cache + first,
                           partial + token * floats,
                           reinterpret_cast<u32*>(counters) + token * n.kv_heads,
                           y,
                           row.token,
                           operand_width(k),
                           few_tokens(most)};
    if constexpr (kPaged) {
      PagedRowOperands in_pages;
      static_cast<RowOperands&>(in_pages) = o;
      in_pages.pages = pages + row.place;
      attend_row_split<Kv, kMatrix>(in_pages, n, s, row, kv_head, warps);
    } else {
      attend_row_split<Kv, kMatrix>(o, n, s, row, kv_head, warps);
    }
    if (kv_head + 1 == n.kv_heads && row.split == 0) end_row(o, k, warps * kWarp);
  }
}

#define LATHE_ROWS_OP(name, Kv, kPaged, kMatrix)                                                  \
  LATHE_OP name(const u8* queries, const i32* chunk, const i32* rows, const i32* pages,           \
                const u8* k_cache, const u8* v_cache, f32* partial, i32* counters, u8* y,         \
                int heads, int kv_heads, int head_dim, int window, int splits, int tokens,        \
                int blocks, int warps) {                                                          \
    attend_rows<Kv, kPaged, kMatrix>(                                                             \
        queries, chunk, rows, pages, k_cache, v_cache, partial, counters,                         \
        reinterpret_cast<u16*>(y), {heads, kv_heads, head_dim, 0, 0, window, splits, 0.0f, 1.0f}, \
        tokens, blocks, warps);                                                                   \
  }
LATHE_ROWS_OP(attend_rows_f32, KvRowsF32, false, false)
LATHE_ROWS_OP(attend_rows_f16, KvRowsF16, false, false)
LATHE_ROWS_OP(attend_rows_q8_0, KvRowsQ8, false, false)
LATHE_ROWS_OP(attend_rows_f16_matrix, KvRowsF16, false, true)
LATHE_ROWS_OP(attend_rows_f32_paged, KvRowsF32, true, false)
LATHE_ROWS_OP(attend_rows_f16_paged, KvRowsF16, true, false)
LATHE_ROWS_OP(attend_rows_q8_0_paged, KvRowsQ8, true, false)
LATHE_ROWS_OP(attend_rows_f16_paged_matrix, KvRowsF16, true, true)

}  // namespace lathe::dev
