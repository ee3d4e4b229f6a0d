// Owns attention of one query position over the KV cache: a partial result per split of the
// context, and their merge.
//
// A block takes one KV head, up to kAttentionMaxHeads of the query heads that share it, and one
// split. Its warps take tiles of 32 positions in turn. For scores a lane owns a position, so K rows
// are dotted without shuffles; for the weighted sum of V a lane owns pairs of head elements.
#pragma once

#include "ops/kv_cache.h"
#include "ops/launch_shapes.h"
#include "ops/math.h"

namespace lathe::dev {

// Positions [begin, end) of `split`, for a query at `position`: the visible ones in `splits` equal
// parts of whole tiles, so that a short context fills the first parts and leaves the rest empty.
LATHE_DEVICE void attention_range(int position, int window, int splits, int split, int& begin,
                                  int& end) {
  const int first = window > 0 ? max_int(0, position - window + 1) : 0;
  const int part = ceil_div(ceil_div(position + 1 - first, splits), kWarp) * kWarp;
  begin = min_int(first + split * part, position + 1);
  end = min_int(begin + part, position + 1);
}

template <class Kv>
LATHE_DEVICE void score_tile(const u8* k_cache, const f32* query, f32* score, i64 at, int head_dim,
                             int heads) {
  LATHE_UNROLL(8)
  for (int h = 0; h < kAttentionMaxHeads; ++h) score[h] = 0;
  if (head_dim % 8 == 0) {
    LATHE_UNROLL(2)
    for (int e = 0; e < head_dim; e += 8) {
      f32 key[8];
      Kv::load8(k_cache, at + e, key);
      LATHE_UNROLL(8)
      for (int h = 0; h < kAttentionMaxHeads; ++h) {
        if (h >= heads) break;
        f32 s = score[h];
        LATHE_UNROLL(8)
        for (int j = 0; j < 8; ++j) s = fma(query[h * head_dim + e + j], key[j], s);
        score[h] = s;
      }
    }
  } else {
    LATHE_UNROLL(4)
    for (int e = 0; e < head_dim; e += 2) {
      f32 key[2];
      Kv::load2(k_cache, at + e, key);
      LATHE_UNROLL(8)
      for (int h = 0; h < kAttentionMaxHeads; ++h) {
        if (h >= heads) break;
        score[h] = fma(query[h * head_dim + e], key[0], score[h]);
        score[h] = fma(query[h * head_dim + e + 1], key[1], score[h]);
      }
    }
  }
}

// K and V as attention() takes them: numbers here, sums of atoms in ops/kv_atoms.h.
template <class Kv>
struct KvNumbers {
  const u8 *k_cache, *v_cache;
};

// The scores of a tile: of each head and the position that the lane owns, whose row this is.
template <class Kv>
LATHE_DEVICE void tile_scores(const KvNumbers<Kv>& kv, const f32* query, f32* score, int own_row,
                              int, int kv_heads, int kv_head, int head_dim, int heads) {
  score_tile<Kv>(kv.k_cache, query, score,
                 (static_cast<i64>(own_row) * kv_heads + kv_head) * head_dim, head_dim, heads);
}

// Elements 2 * lane + 64 d of a value and the next of each, d below kAttentionMaxPairs.
template <class Kv>
LATHE_DEVICE void value_pairs(const KvNumbers<Kv>& kv, f32* value, int place, int kv_heads,
                              int kv_head, int head_dim) {
  const i64 row = (static_cast<i64>(place) * kv_heads + kv_head) * head_dim;
  LATHE_UNROLL(4)
  for (int d = 0; d < kAttentionMaxPairs; ++d) {
    const int e = 2 * lane_index() + 64 * d;
    value[2 * d] = value[2 * d + 1] = 0;
    if (64 * d < head_dim && e < head_dim) Kv::load2(kv.v_cache, row + e, value + 2 * d);
  }
}

// `pages`: null where the positions are one after the other, which kPaged says.
template <bool kPaged, class Kv>
LATHE_DEVICE void attention(const f32* q, const Kv& kv, const i32* position, const i32* pages,
                            f32* partial, int heads, int kv_heads, int head_dim, int window,
                            int splits, int warps, f32 scale) {
  const int group = heads / kv_heads;
  const int per_block = attention_heads(group, head_dim);
  const int blocks_per_kv = ceil_div(group, per_block);
  const int kv_head = block_x() / blocks_per_kv;
  const int first_head = kv_head * group + block_x() % blocks_per_kv * per_block;
  const int block_heads =
      group % per_block ? min_int(per_block, (kv_head + 1) * group - first_head) : per_block;
  const int threads = warps * kWarp;

  f32* query = reinterpret_cast<f32*>(shared_memory());
  LATHE_UNROLL(2)
  for (int step = 0; step < ceil_div(per_block * head_dim, threads); ++step) {
    const int i = step * threads + thread_index();
    if (i >= per_block * head_dim) break;
    // A last block with fewer heads computes the missing ones on zeros and drops them.
    query[i] = i < block_heads * head_dim ? q[first_head * head_dim + i] * scale : 0.0f;
  }
  block_barrier();

  int begin, end;
  attention_range(*position, window, splits, block_y(), begin, end);
  f32 maximum[kAttentionMaxHeads], sum[kAttentionMaxHeads];
  f32 acc[kAttentionMaxHeads][kAttentionMaxPairs * 2];
  LATHE_UNROLL(8)
  for (int h = 0; h < kAttentionMaxHeads; ++h) {
    maximum[h] = -3.0e38f;
    sum[h] = 0;
    LATHE_UNROLL(8)
    for (int e = 0; e < kAttentionMaxPairs * 2; ++e) acc[h][e] = 0;
  }

  int entries = 0;  // of the warp's next tile
  if constexpr (kPaged) entries = page_entries(pages, begin + warp_index() * kWarp, begin, end - 1);
  LATHE_UNROLL(1)
  for (int tile = begin + warp_index() * kWarp; tile < end; tile += threads) {
    const int own = tile + lane_index();
    const int safe = min_int(own, end - 1);
    int own_row = safe;
    if constexpr (kPaged) {
      own_row = row_of_entries(entries, tile, safe);
      entries = page_entries(pages, tile + threads, begin, end - 1);
    }
    f32 score[kAttentionMaxHeads];
    tile_scores(kv, query, score, own_row, end - tile, kv_heads, kv_head, head_dim, per_block);
    LATHE_UNROLL(8)
    for (int h = 0; h < kAttentionMaxHeads; ++h) {
      if (h >= per_block) break;
      const f32 s = own < end ? score[h] : -3.0e38f;
      const f32 top = warp_max(s);
      const f32 next = top > maximum[h] ? top : maximum[h];
      const f32 keep = exponential(maximum[h] - next);
      const f32 weight = own < end ? exponential(s - next) : 0.0f;
      maximum[h] = next;
      sum[h] = fma(sum[h], keep, warp_sum(weight));
      score[h] = weight;
      LATHE_UNROLL(8)
      for (int e = 0; e < kAttentionMaxPairs * 2; ++e) acc[h][e] = acc[h][e] * keep;
    }
    const int count = min_int(kWarp, end - tile);
    LATHE_UNROLL(2)
    for (int j = 0; j < count; ++j) {
      int place = tile + j;
      if constexpr (kPaged) place = static_cast<int>(shuffle(static_cast<u32>(own_row), j));
      f32 value[kAttentionMaxPairs * 2];
      value_pairs(kv, value, place, kv_heads, kv_head, head_dim);
      LATHE_UNROLL(8)
      for (int h = 0; h < kAttentionMaxHeads; ++h) {
        if (h >= per_block) break;
        const f32 weight = shuffle(score[h], j);
        LATHE_UNROLL(8)
        for (int e = 0; e < kAttentionMaxPairs * 2; ++e)
          if (64 * (e / 2) < head_dim) acc[h][e] = fma(weight, value[e], acc[h][e]);
      }
    }
  }

  // Every warp leaves its result; then a thread per head element adds the warps up.
  f32* results = query + per_block * head_dim;
  const int stride = head_dim + 2;
  LATHE_UNROLL(8)
  for (int h = 0; h < kAttentionMaxHeads; ++h) {
    if (h >= per_block) break;
    f32* mine = results + (warp_index() * per_block + h) * stride;
    LATHE_UNROLL(4)
    for (int d = 0; d < kAttentionMaxPairs; ++d) {
      const int e = 2 * lane_index() + 64 * d;
      if (64 * d < head_dim && e < head_dim) {
        mine[e] = acc[h][2 * d];
        mine[e + 1] = acc[h][2 * d + 1];
      }
    }
    if (lane_index() == 0) {
      mine[head_dim] = maximum[h];
      mine[head_dim + 1] = sum[h];
    }
  }
  block_barrier();
  LATHE_UNROLL(1)
  for (int step = 0; step < ceil_div(per_block * head_dim, threads); ++step) {
    const int i = step * threads + thread_index();
    if (i >= block_heads * head_dim) break;
    const int h = i / head_dim, e = i % head_dim;
    f32 top = -3.0e38f;
    for (int w = 0; w < warps; ++w) {
      const f32 m = results[(w * per_block + h) * stride + head_dim];
      top = m > top ? m : top;
    }
    f32 value = 0, total = 0;
    for (int w = 0; w < warps; ++w) {
      const f32* from = results + (w * per_block + h) * stride;
      const f32 factor = exponential(from[head_dim] - top);
      value = fma(from[e], factor, value);
      total = fma(from[head_dim + 1], factor, total);
    }
    f32* out = partial + (static_cast<i64>(first_head + h) * splits + block_y()) * stride;
    out[e] = value;
    if (e == 0) {
      out[head_dim] = top;
      out[head_dim + 1] = total;
    }
  }
}

#define LATHE_ATTENTION_OP(name, Kv, kPaged)                                                       \
  LATHE_OP name(const f32* q, const u8* k_cache, const u8* v_cache, const i32* position,           \
                const i32* pages, f32* partial, int heads, int kv_heads, int head_dim, int window, \
                int splits, int warps, f32 scale) {                                                \
    attention<kPaged>(q, KvNumbers<Kv>{k_cache, v_cache}, position, pages, partial, heads,         \
                      kv_heads, head_dim, window, splits, warps, scale);                           \
  }
LATHE_ATTENTION_OP(attention_f32, KvF32, false)
LATHE_ATTENTION_OP(attention_f16, KvF16, false)
LATHE_ATTENTION_OP(attention_f32_paged, KvF32, true)
LATHE_ATTENTION_OP(attention_f16_paged, KvF16, true)

// partial[heads][splits][head_dim + 2] (weighted values, maximum, sum of weights) -> y.
LATHE_OP attention_merge(const f32* partial, f32* y, int heads, int head_dim, int splits,
                         int warps) {
  const int i = block_x() * warps * kWarp + thread_index();
  if (i >= heads * head_dim) return;
  const int stride = head_dim + 2;
  const int h = i / head_dim, e = i % head_dim;
  const f32* from = partial + static_cast<i64>(h) * splits * stride;
  f32 top = -3.0e38f;
  LATHE_UNROLL(16)
  for (int s = 0; s < splits; ++s) {
    const f32 m = from[s * stride + head_dim];
    top = m > top ? m : top;
  }
  // Sums of sums: a thousand terms one after the other would round a thousand times.
  f32 value = 0, total = 0;
  LATHE_UNROLL(1)
  for (int first = 0; first < splits; first += 16) {
    f32 some = 0, some_weights = 0;
    LATHE_UNROLL(16)
    for (int s = first; s < min_int(first + 16, splits); ++s) {
      const f32* part = from + s * stride;
      const f32 factor = exponential(part[head_dim] - top);
      some = fma(part[e], factor, some);
      some_weights = fma(part[head_dim + 1], factor, some_weights);
    }
    value += some;
    total += some_weights;
  }
  y[i] = divide(value, total);
}

}  // namespace lathe::dev
