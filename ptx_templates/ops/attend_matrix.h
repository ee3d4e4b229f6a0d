// Owns how fused attention of a token reads a split of the positions by the matrix units, from a
// cache of f16 for up to 8 query heads of up to 128 values a KV head.
//
// A warp takes 16 positions at a time. A lane's bytes of K are operand B of the scores as they lie
// in the cache, and those of V, paired, operand A of the result; the order of a head's values
// within a product is free, so no operand goes from lane to lane. Queries and weights are the sum
// of two f16, which leaves 2^-22 of them. Lane 4g + t has the scores of one head, that of g.
//
// Weights are 2^(score - reference + 12): the reference follows the greatest score only when that
// is more than 3 above it, so that most tiles scale nothing, and the 12 keeps small weights clear
// of where f16 ends.
#pragma once

#include "ops/attend_fragments.h"
#include "ops/attend_merge.h"
#include "ops/attend_shapes.h"

namespace lathe::dev {

// A warp's part of a softmax. kPadded only says for how many heads it is.
enum : int { kWeightRoom = 12, kWeightSlack = 3 };
template <int kPadded>
struct MatrixState {
  f32 base;  // kWeightRoom less the reference of the lane's head; 3e38 where there is none
  f32 sum;   // of the lane's own weights
  // Columns 2t, 2t + 1 of values 8g + i, then those of 8g + 4 + i, of each chunk. With four heads
  // columns 4 ... 7 are what the f16 weights of columns 0 ... 3 leave.
  f32 acc[kMatrixChunks][4][4];
};

template <int kPadded>
LATHE_DEVICE MatrixState<kPadded> matrix_state() {
  MatrixState<kPadded> state;
  state.base = 3.0e38f;
  state.sum = 0;
  LATHE_UNROLL(2)
  for (int chunk = 0; chunk < kMatrixChunks; ++chunk) {
    LATHE_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      LATHE_UNROLL(4)
      for (int c = 0; c < 4; ++c) state.acc[chunk][i][c] = 0;
    }
  }
  return state;
}

// A value that every lane has of its head, of the heads of columns 2t and 2t + 1.
LATHE_DEVICE void of_columns(f32 value, f32& first, f32& second) {
  first = shuffle(value, lane_index() % 4 * 8);
  second = shuffle(value, lane_index() % 4 * 8 + 4);
}

// A factor for each head, which the lanes of the head have.
template <int kPadded>
LATHE_DEVICE void scale_state(MatrixState<kPadded>& state, f32 factor, int head_dim) {
  f32 first, second;
  of_columns(factor, first, second);
  state.sum = state.sum * factor;
  LATHE_UNROLL(2)
  for (int chunk = 0; chunk < ceil_div(head_dim, 64); ++chunk) {
    LATHE_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      state.acc[chunk][i][0] = state.acc[chunk][i][0] * first;
      state.acc[chunk][i][1] = state.acc[chunk][i][1] * second;
      state.acc[chunk][i][2] = state.acc[chunk][i][2] * first;
      state.acc[chunk][i][3] = state.acc[chunk][i][3] * second;
    }
  }
}

// Scores become weights.
template <int kPadded>
LATHE_DEVICE void weigh_scores(MatrixState<kPadded>& state, f32 factor, int head_dim,
                               f32 (&score)[4]) {
  f32 top = score[0];
  LATHE_UNROLL(3)
  for (int i = 1; i < 4; ++i) top = score[i] > top ? score[i] : top;
  const f32 above = fma(top, factor, state.base);
  if (ballot(above > static_cast<f32>(kWeightRoom + kWeightSlack)) != 0) {
    LATHE_UNROLL(2)
    for (int mask = 1; mask <= 2; mask *= 2) {
      const f32 other = shuffle_xor(top, mask);
      top = other > top ? other : top;
    }
    const f32 base = fma(top, -factor, static_cast<f32>(kWeightRoom));
    const f32 next = base < state.base ? base : state.base;
    scale_state(state, power_of_two_near(next - state.base), head_dim);
    state.base = next;
  }
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    score[i] = power_of_two_near(fma(score[i], factor, state.base));
    state.sum = state.sum + score[i];
  }
}

// acc += V weights: operand B are the weights, by head.
template <int kPadded>
LATHE_DEVICE void add_values(MatrixState<kPadded>& state, const MatrixTile& tile,
                             const f32 (&weight)[4], int head_dim) {
  const SplitPair near = split_pair(weight[0], weight[1]), far = split_pair(weight[2], weight[3]);
  const bool rest = kPadded == 4 && lane_index() >= kWarp / 2;
  const u32 b0 = rest ? near.low : near.high, b1 = rest ? far.low : far.high;
  LATHE_UNROLL(2)
  for (int chunk = 0; chunk < ceil_div(head_dim, 64); ++chunk) {
    const u32x4(&v)[4][kMatrixChunks] = tile.value;
    u32 a[4][4];
    LATHE_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      const u32 halves = i % 2 ? 0x7632u : 0x5410u;  // of values i and 4 + i
      LATHE_UNROLL(4)
      for (int j = 0; j < 4; ++j)
        a[i][j] = byte_permute(word_of(v[j / 2 * 2][chunk], j % 2 * 2 + i / 2),
                               word_of(v[j / 2 * 2 + 1][chunk], j % 2 * 2 + i / 2), halves);
      mma_f16_k16(state.acc[chunk][i], a[i][0], a[i][1], a[i][2], a[i][3], b0, b1);
    }
    if constexpr (kPadded == 8) {
      LATHE_UNROLL(4)
      for (int i = 0; i < 4; ++i)
        mma_f16_k16(state.acc[chunk][i], a[i][0], a[i][1], a[i][2], a[i][3], near.low, far.low);
    }
  }
}

// To a slot, or to what is in it.
LATHE_DEVICE void put_values(f32* out, bool adds, const f32 (&v)[4]) {
  f32x4& to = *reinterpret_cast<f32x4*>(out);
  if (adds)
    to = {to.x + v[0], to.y + v[1], to.z + v[2], to.w + v[3]};
  else
    to = {v[0], v[1], v[2], v[3]};
}

// The warp's values of the heads to their places in a slot.
template <int kPadded>
LATHE_DEVICE void put_state(const MatrixState<kPadded>& state, bool adds, int group, int head_dim,
                            f32* slot) {
  const int g = lane_index() / 4, t = lane_index() % 4;
  LATHE_UNROLL(2)
  for (int chunk = 0; chunk < ceil_div(head_dim, 64); ++chunk) {
    LATHE_UNROLL(2)
    for (int column = 0; column < 2; ++column) {
      const f32(&acc)[4][4] = state.acc[chunk];
      const int at = 64 * chunk + 8 * g;
      if constexpr (kPadded == 4) {
        // Two lanes have the parts of the same two heads: each takes half of the values.
        const int upper = t / 2, h = t % 2 * 2 + column;
        f32 v[4];
        LATHE_UNROLL(4)
        for (int i = 0; i < 4; ++i) {
          const f32 low = acc[i][column], high = acc[i][2 + column];
          v[i] = (upper ? high : low) + shuffle_xor(upper ? low : high, 2);
        }
        if (h < group && at < head_dim) put_values(slot + h * head_dim + at + 4 * upper, adds, v);
      } else {
        const int h = t * 2 + column;
        if (h >= group || at >= head_dim) continue;
        f32* out = slot + h * head_dim + at;
        put_values(out, adds, {acc[0][column], acc[1][column], acc[2][column], acc[3][column]});
        put_values(
            out + 4, adds,
            {acc[0][2 + column], acc[1][2 + column], acc[2][2 + column], acc[3][2 + column]});
      }
    }
  }
}

// Leaves the block's result in the slots, and its maxima, as block_result() does.
template <int kPadded>
LATHE_DEVICE void matrix_result(MatrixState<kPadded>& state, const AttendShape& s,
                                const AttendShared& m, int head, int head_dim, int warps,
                                u8* shared) {
  f32* bases = reinterpret_cast<f32*>(shared + m.maxima);
  f32* block_maxima = bases + warps * kPadded;
  const int g = lane_index() / 4;
  const bool writes = lane_index() % 4 == 0 && g < s.group;
  if (writes) bases[warp_index() * kPadded + g] = state.base;
  LATHE_UNROLL(2)
  for (int mask = 1; mask <= 2; mask *= 2) state.sum = state.sum + shuffle_xor(state.sum, mask);
  block_barrier();  // and all are done with the queries, where the slots are
  f32 least = 3.0e38f;
  LATHE_UNROLL(16)
  for (int w = 0; w < warps; ++w) {
    const f32 other = bases[w * kPadded + head];
    least = other < least ? other : least;
  }
  if (writes && warp_index() == 0)
    block_maxima[g] = (static_cast<f32>(kWeightRoom) - least) * 0.693147181f;
  scale_state(state, power_of_two_near(least - state.base), head_dim);
  const int own = warp_index() / m.slots;
  f32* slot = reinterpret_cast<f32*>(shared) + warp_index() % m.slots * m.slot_floats;
  LATHE_UNROLL(1)
  for (int round = 0; round < ceil_div(warps, m.slots); ++round) {
    if (own == round) {
      put_state(state, round > 0, s.group, head_dim, slot);
      f32* out = slot + s.group * head_dim + g;
      if (writes) *out = round > 0 ? *out + state.sum : state.sum;
    }
    block_barrier();
  }
}

// One KV head and one split of the positions, as attend_split() takes them; operands that append
// nothing have their queries in f16. kPadded is s.padded.
template <int kPadded, class Operands>
LATHE_DEVICE void attend_matrix_split(const Exchange& e, const Operands& o, const AttendNumbers& n,
                                      const AttendShape& s, int position, int kv_head, int split,
                                      int splits, int warps, u8* shared) {
  const int d = n.head_dim, least = n.window > 0 ? max_int(0, position - n.window + 1) : 0;
  const int share = round_up(ceil_div(position + 1 - least, splits), s.tile);
  const int begin = min_int(least + split * share, position + 1);
  const int end = min_int(begin + share, position + 1), step = warps * s.tile;
  const AttendShared m = attend_matrix_shared(s, d, n.splits, warps);
  const i64 offset = static_cast<i64>(kv_head) * d * 2;
  const i64 stride = kv_position_bytes(KvRowsF16::bytes, n.kv_heads * d);
  // Rows of earlier tokens: they can come while this token's projections do.
  const int old = Operands::appends ? min_int(end, position) : end;
  const i32* pages = nullptr;
  if constexpr (Operands::paged != 0) pages = o.pages;
  const MatrixRows keys = {o.k_cache + offset, stride, old - 1, d, pages};
  const MatrixRows values = {o.v_cache + offset, stride, old - 1, d, pages};
  int first = begin + warp_index() * s.tile;
  MatrixTile tile = {};
  if (first < end && old > begin) {
    load_keys(keys, first, tile);
    load_values(values, first, tile);
  }

  const u8* packed = shared + m.packed;
  const int head = min_int(lane_index() / 4 % kPadded, s.group - 1);
  MatrixQuery query;
  if constexpr (Operands::appends) {
    f32* queries = reinterpret_cast<f32*>(shared);
    const int query_stride = s.lanes * s.vec;
    const bool has_new = begin <= position && position < end;
    attend_vectors<KvRowsF16>(e, o, n, position, {kv_head, kv_head * s.group, s.group, has_new},
                              warps, query_stride, queries,
                              reinterpret_cast<f32*>(shared + m.fresh), shared + m.packed);
    split_queries(queries, query_stride, s.group, warps);
    block_barrier();
    query = matrix_query(queries + head * query_stride, query_stride, d);
  } else {
    const u16* queries = reinterpret_cast<const u16*>(o.queries);
    query = matrix_query(queries + (kv_head * s.group + head) * d, d);
  }
  MatrixState<kPadded> state = matrix_state<kPadded>();
  LATHE_UNROLL(1)
  for (; first + step < end; first += step) {
    f32 score[4];
    score_tile(query, tile, d, score);
    load_keys(keys, first + step, tile);
    weigh_scores(state, query.factor, d, score);
    add_values(state, tile, score, d);
    load_values(values, first + step, tile);
  }
  // The last tile apart: the new row may be in it. What puts a row over K and V waits for all that
  // is under way to them, in a loop each time.
  if (first < end) {
    if constexpr (Operands::appends) patch_keys(packed, d, first, position, tile);
    f32 score[4];
    score_tile(query, tile, d, score);
    LATHE_UNROLL(4)
    for (int i = 0; i < 4; ++i)
      if (first + value_position(i) >= end) score[i] = -3.0e38f;
    weigh_scores(state, query.factor, d, score);
    if constexpr (Operands::appends)
      patch_values(packed + kv_row_bytes(2, d), d, first, position, tile);
    add_values(state, tile, score, d);
  }
  matrix_result(state, s, m, head, d, warps, shared);
  finish_split(e, o, n, s, m, kv_head, split, splits, warps, shared);
}

// The same with kPadded from the shape, which is constant, unless the source has it.
template <int kPadded, class Operands>
LATHE_DEVICE void attend_matrix_split_of(const Exchange& e, const Operands& o,
                                         const AttendNumbers& n, const AttendShape& s, int position,
                                         int kv_head, int split, int splits, int warps,
                                         u8* shared) {
  if constexpr (kPadded > 0)
    attend_matrix_split<kPadded>(e, o, n, s, position, kv_head, split, splits, warps, shared);
  else if (s.padded == 4)
    attend_matrix_split<4>(e, o, n, s, position, kv_head, split, splits, warps, shared);
  else
    attend_matrix_split<8>(e, o, n, s, position, kv_head, split, splits, warps, shared);
}

}  // namespace lathe::dev
