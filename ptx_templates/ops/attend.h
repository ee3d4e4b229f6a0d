// Owns fused attention of one token: everything between the projections to queries, key and value
// and the output projection. Queries and key are normed and rotated, key and value appended to the
// cache, and y = softmax(scale q . K) V over the visible positions, the new one as the cache has
// it.
//
// A block takes one KV head with all its query heads, and one split of the positions; in a short
// context one query head (ops/attend_short.h). Its warps take tiles of rows by turns: a lane holds
// `vec` values of a few rows, so that a warp's loads are whole rows; scores are summed over the
// lanes of a row in such a way that each lane ends with other scores than its neighbours, which
// spreads the exponentials. How many splits are in use depends on the position; the last block of a
// KV head to finish merges them in their order.
#pragma once

#include "ops/attend_matrix.h"
#include "ops/attend_merge.h"
#include "ops/attend_pages.h"
#include "ops/attend_short.h"
#include "ops/attend_vectors.h"

namespace lathe::dev {

template <class Kv, int kVec>
struct AttendTile {
  enum : int { passes = attend_passes(kVec, Kv::bytes) };
  KvPart<Kv, kVec> part[passes];
};

// A lane's place in its warp: row `row` of each pass, values `at` ... of it.
struct AttendLane {
  int row, at;
  int scale;   // how far behind its values their scale lies in the cache; unused without scales
  i64 stride;  // bytes from position to position
};

// The lane's part of rows tile + pass * rows + row, the last row in place of those past it. In
// pages they are where place_tile() said.
template <class Kv, int kVec, bool kPaged>
LATHE_DEVICE void load_tile(const u8* cache, const AttendLane& lane, int tile, int rows, int last,
                            const TilePages<kPaged, AttendTile<Kv, kVec>::passes>& pages,
                            AttendTile<Kv, kVec>& out) {
  LATHE_UNROLL(8)
  for (int u = 0; u < AttendTile<Kv, kVec>::passes; ++u) {
    const int row = row_of_pass(pages, u, min_int(tile + u * rows + lane.row, last));
    load_part(cache + row * lane.stride, lane.scale, out.part[u]);
  }
}

// Puts the new row in its place, if this tile has it.
template <class Kv, int kVec>
LATHE_DEVICE void patch_tile(const u8* packed, const AttendLane& lane, int head_dim, int tile,
                             int rows, int position, AttendTile<Kv, kVec>& out) {
  const int scale = head_dim - lane.at + lane.at / 32 * 2;
  LATHE_UNROLL(8)
  for (int u = 0; u < AttendTile<Kv, kVec>::passes; ++u)
    if (tile + u * rows + lane.row == position)
      shared_part(packed + lane.at * Kv::bytes, scale, out.part[u]);
}

// Sums kCount values, a power of two, over the lanes of a row, 2 * mask of them: each lane ends
// with the sums of max(1, kCount / lanes) of them, the upper bits of whose index are the lane's.
template <int kCount>
LATHE_DEVICE void spread_sums(f32* value, int mask) {
  if (mask == 0) return;
  if constexpr (kCount == 1) {
    LATHE_UNROLL(5)
    for (; mask > 0; mask /= 2) value[0] = value[0] + shuffle_xor(value[0], mask);
  } else {
    const bool upper = (lane_index() & mask) != 0;
    LATHE_UNROLL(32)
    for (int i = 0; i < kCount / 2; ++i) {
      const f32 low = value[i], high = value[kCount / 2 + i];
      value[i] = (upper ? high : low) + shuffle_xor(upper ? low : high, mask);
    }
    spread_sums<kCount / 2>(value, mask / 2);
  }
}

// q . K for the lane's rows of passes u and u + 1, summed over lanes in different halves of a row:
// those with `upper` go on with pass u + 1. Scores are by head.
template <int kPadded, class Kv, int kVec>
LATHE_DEVICE void score_pair(const AttendTile<Kv, kVec>& keys, int u, const f32* query,
                             int query_stride, const AttendShape& s, int scale, f32* score) {
  f32 key[2][kVec], a[kPadded], b[kPadded];
  Kv::decode(keys.part[u], scale, key[0]);
  Kv::decode(keys.part[u + 1], scale, key[1]);
  LATHE_UNROLL(2)
  for (int i = 0; i < kVec; i += 4) {
    LATHE_UNROLL(8)
    for (int h = 0; h < kPadded; ++h) {
      if (i == 0) a[h] = b[h] = 0;
      if (h >= s.heads) continue;
      const f32x4 q = shared_f32x4(query + h * query_stride + i);
      a[h] = fma(q.x, key[0][i], a[h]);
      b[h] = fma(q.x, key[1][i], b[h]);
      a[h] = fma(q.y, key[0][i + 1], a[h]);
      b[h] = fma(q.y, key[1][i + 1], b[h]);
      a[h] = fma(q.z, key[0][i + 2], a[h]);
      b[h] = fma(q.z, key[1][i + 2], b[h]);
      a[h] = fma(q.w, key[0][i + 3], a[h]);
      b[h] = fma(q.w, key[1][i + 3], b[h]);
    }
  }
  const bool upper = (lane_index() & s.lanes / 2) != 0;
  LATHE_UNROLL(8)
  for (int h = 0; h < kPadded; ++h)
    score[h] = (upper ? b[h] : a[h]) + shuffle_xor(upper ? a[h] : b[h], s.lanes / 2);
}

// A value per head from shared memory.
template <int kPadded>
LATHE_DEVICE void load_per_head(const f32* from, f32 (&out)[kPadded]) {
  if constexpr (kPadded >= 4) {
    LATHE_UNROLL(2)
    for (int i = 0; i < kPadded / 4; ++i) {
      const f32x4 v = reinterpret_cast<const f32x4*>(from)[i];
      out[4 * i] = v.x;
      out[4 * i + 1] = v.y;
      out[4 * i + 2] = v.z;
      out[4 * i + 3] = v.w;
    }
  } else {
    LATHE_UNROLL(2)
    for (int i = 0; i < kPadded; ++i) out[i] = from[i];
  }
}

// Multiplies the accumulators by one factor per head, from shared memory.
template <int kPadded>
LATHE_DEVICE void rescale(AttendState<kPadded>& state, const f32* factors, int heads) {
  f32 factor[kPadded];
  load_per_head(factors, factor);
  bool changed = false;
  LATHE_UNROLL(8)
  for (int h = 0; h < kPadded; ++h)
    if (h < heads && factor[h] != 1.0f) changed = true;
  if (!changed) return;  // all lanes see the same factors
  LATHE_UNROLL(8)
  for (int h = 0; h < kPadded; ++h) {
    LATHE_UNROLL(8)
    for (int i = 0; i < AttendState<kPadded>::vec; ++i)
      if (h < heads) state.acc[h][i] = state.acc[h][i] * factor[h];
  }
}

// The tile's weights to shared memory, [row][head], then the factors that what was summed before
// needs, [head]. When it returns the warp can read them. `visible`: the lane's row is.
template <int kPadded, int kScores>
LATHE_DEVICE void weigh_tile(AttendState<kPadded>& state, const f32 (&score)[kScores], bool visible,
                             const AttendShape& s, f32* weights) {
  f32 weight[AttendState<kPadded>::most_kept], keep[AttendState<kPadded>::most_kept];
  LATHE_UNROLL(4)
  for (int i = 0; i < AttendState<kPadded>::most_kept; ++i) {
    if (i >= s.kept) continue;
    const f32 own = visible ? score[i] : -3.0e38f;
    f32 top = own;
    LATHE_UNROLL(5)
    for (int mask = kWarp / 2; mask >= s.span; mask /= 2) {
      const f32 other = shuffle_xor(top, mask);
      top = other > top ? other : top;
    }
    const f32 next = top > state.maximum[i] ? top : state.maximum[i];
    keep[i] = exponential(state.maximum[i] - next);
    weight[i] = visible ? exponential(own - next) : 0.0f;
    state.maximum[i] = next;
    state.sum[i] = fma(state.sum[i], keep[i], weight[i]);
  }
  warp_barrier();  // the tile before has been read
  if (state.only) {
    LATHE_UNROLL(4)
    for (int i = 0; i < AttendState<kPadded>::most_kept; ++i) {
      if (i >= s.kept) continue;
      weights[state.tile_row * kPadded + state.head + i] = weight[i];
      if (state.tile_row == 0) weights[s.tile * kPadded + state.head + i] = keep[i];
    }
  }
  warp_barrier();
}

// acc += weights V.
template <class Kv, int kVec, int kPadded>
LATHE_DEVICE void add_values(AttendState<kPadded>& state, const AttendTile<Kv, kVec>& values,
                             const f32* weights, int row, const AttendShape& s, int scale) {
  LATHE_UNROLL(8)
  for (int u = 0; u < AttendTile<Kv, kVec>::passes; ++u) {
    f32 value[kVec], weight[kPadded];
    Kv::decode(values.part[u], scale, value);
    load_per_head(weights + (u * s.rows + row) * kPadded, weight);
    LATHE_UNROLL(8)
    for (int h = 0; h < kPadded; ++h) {
      LATHE_UNROLL(8)
      for (int i = 0; i < kVec; ++i)
        if (h < s.heads) state.acc[h][i] = fma(weight[h], value[i], state.acc[h][i]);
    }
  }
}

// One KV head and one split of the positions. kPadded is s.padded. Operands are AttendOperands, or
// others that say whether the token's key and value are to be appended, and whether the cache lies
// in pages, and have attend_vectors(), results_from() and send_results() of their own
// (ops/attend_rows.h).
template <class Kv, int kPadded, class Operands>
LATHE_DEVICE void attend_split(const Exchange& e, const Operands& o, const AttendNumbers& n,
                               const AttendShape& s, int position, int kv_head, int split,
                               int splits, int warps, u8* shared) {
  constexpr int kVec = AttendState<kPadded>::vec, passes = AttendTile<Kv, kVec>::passes;
  const int d = n.head_dim, first = n.window > 0 ? max_int(0, position - n.window + 1) : 0;
  const int share = round_up(ceil_div(position + 1 - first, splits), s.tile);
  const int begin = min_int(first + split * share, position + 1);
  const int end = min_int(begin + share, position + 1);
  const AttendShared m = attend_shared(s, d, Kv::bytes, n.splits, warps);
  const int team = warp_index() % s.teams, member = warp_index() / s.teams;
  const int step = warps / s.teams * s.tile;

  const int lane_of_row = lane_index() % s.lanes;
  const int at = kVec * lane_of_row < d ? kVec * lane_of_row : 0;
  const AttendLane lane = {lane_index() / s.lanes, at,
                           n.kv_heads * d - (kv_head * d + at) + (kv_head * d / 32 + at / 32) * 2,
                           kv_position_bytes(Kv::bytes, n.kv_heads * d)};
  const i64 offset = (static_cast<i64>(kv_head) * d + at) * Kv::bytes;
  const u8* keys_at = o.k_cache + offset;
  const u8* values_at = o.v_cache + offset;

  // Rows of earlier tokens: they can come while this token's projections do.
  const int last = (Operands::appends ? min_int(end, position) : end) - 1;
  int tile = begin + member * s.tile;
  AttendTile<Kv, kVec> keys = {}, values = {};
  TilePages<Operands::paged != 0, passes> pages;
  if constexpr (Operands::paged != 0) {
    pages.pages = o.pages;
    pages.least = begin;
    pages.last = last;
    pages.whole = n.window == 0 && s.tile <= kPagePositions;
  }
  look_up_tile(pages, tile);
  if (tile < end && last >= begin) {
    place_tile(pages, lane.row, tile, s.rows);
    load_tile(keys_at, lane, tile, s.rows, last, pages, keys);
    load_tile(values_at, lane, tile, s.rows, last, pages, values);
  }
  look_up_tile(pages, tile + step);

  f32* queries = reinterpret_cast<f32*>(shared);
  u8* packed = shared + m.packed;
  const int query_stride = s.lanes * kVec;
  const bool has_new = Operands::appends && begin <= position && position < end;
  attend_vectors<Kv>(e, o, n, position, {kv_head, kv_head * s.group, s.group, has_new}, warps,
                     query_stride, queries, reinterpret_cast<f32*>(shared + m.fresh), packed);
  block_barrier();

  AttendState<kPadded> state = attend_state<kPadded>(s);
  f32* weights = reinterpret_cast<f32*>(shared + m.weights + warp_index() * m.weights_bytes);
  // A last team with fewer heads computes its last one again and drops it.
  const int team_head = min_int(team * s.heads, s.group - s.heads);
  const f32* query = queries + team_head * query_stride + kVec * lane_of_row;
  LATHE_UNROLL(1)
  for (; tile < end; tile += step) {
    const bool patched = Operands::appends && end > position && tile + s.tile > position;
    if (patched) patch_tile(packed, lane, d, tile, s.rows, position, keys);
    f32 score[passes / 2 * kPadded];
    LATHE_UNROLL(2)
    for (int u = 0; u < passes; u += 2)
      score_pair<kPadded>(keys, u, query, query_stride, s, lane.scale, score + u / 2 * kPadded);
    spread_sums<passes / 2 * kPadded>(score, s.lanes / 4);
    if (tile + step < end && last >= begin) {
      place_tile(pages, lane.row, tile + step, s.rows);
      load_tile(keys_at, lane, tile + step, s.rows, last, pages, keys);
    }
    weigh_tile(state, score, tile + state.tile_row < end, s, weights);
    rescale(state, weights + s.tile * kPadded, s.heads);
    if (patched)
      patch_tile(packed + kv_row_bytes(Kv::bytes, d), lane, d, tile, s.rows, position, values);
    add_values(state, values, weights, lane.row, s, lane.scale);
    if (tile + step < end && last >= begin)
      load_tile(values_at, lane, tile + step, s.rows, last, pages, values);
    look_up_tile(pages, tile + 2 * step);
  }
  const int before = team * s.heads - team_head;  // heads that another team has
  block_result(state, s, m, lane.row, kVec * lane_of_row, team, member, team_head, before, d, warps,
               shared);
  finish_split(e, o, n, s, m, kv_head, split, splits, warps, shared);
}

// The same with kPadded from the shape, which is constant, unless the source has it.
template <class Kv, int kPadded, class Operands>
LATHE_DEVICE void attend_split_of(const Exchange& e, const Operands& o, const AttendNumbers& n,
                                  const AttendShape& s, int position, int kv_head, int split,
                                  int splits, int warps, u8* shared) {
  if constexpr (kPadded > 0)
    attend_split<Kv, kPadded>(e, o, n, s, position, kv_head, split, splits, warps, shared);
  else if (s.padded == 1)
    attend_split<Kv, 1>(e, o, n, s, position, kv_head, split, splits, warps, shared);
  else if (s.padded == 2)
    attend_split<Kv, 2>(e, o, n, s, position, kv_head, split, splits, warps, shared);
  else if (s.padded == 4)
    attend_split<Kv, 4>(e, o, n, s, position, kv_head, split, splits, warps, shared);
  else
    attend_split<Kv, 8>(e, o, n, s, position, kv_head, split, splits, warps, shared);
}

// How the blocks share the work: each item is a KV head with all its query heads and one of its
// parts of the positions, or, in a short context, one of its query heads.
struct AttendShares {
  bool by_heads;
  int parts;  // of a KV head
};

// Parts that blocks can make of a KV head's positions, at most.
LATHE_DEVICE int most_splits(const AttendNumbers& n, int blocks) {
  return min_int(n.splits, max_int(1, blocks / n.kv_heads));
}

template <class Kv>
LATHE_DEVICE AttendShares attend_shares(const AttendNumbers& n, int position, int blocks) {
  const int visible = n.window > 0 ? min_int(n.window, position + 1) : position + 1;
  const int group = n.heads / n.kv_heads, most = most_splits(n, blocks);
  const int splits = attend_splits(visible, n.head_dim, Kv::bytes, most);
  const bool by_heads = splits == 1 && visible <= kAttendShortPositions && group <= most;
  return {by_heads, by_heads ? group : splits};
}

// How many blocks, the first ones, have work in attend_phase().
template <class Kv>
LATHE_DEVICE int attend_blocks(const AttendNumbers& n, int position, int blocks) {
  return min_int(blocks, n.kv_heads * attend_shares<Kv>(n, position, blocks).parts);
}

// All of the grid: `block` of `blocks` blocks of `warps` warps; each calls once per token and
// layer. `shared` is 16-byte aligned, attend_bytes(...) or attend_matrix_bytes(...) long. The block
// meets before it is first written, and a persistent kernel's once more after the call. Blocks
// without work do nothing. The new rows are read by other blocks from the next token on: whatever
// hands over the token must order that. kMatrix: of longer contexts the products are those of the
// matrix units. kPadded: as the shape's, when the source knows it; 0 otherwise.
template <class Kv, bool kMatrix = false, int kPadded = 0>
LATHE_DEVICE void attend_phase(const Exchange& e, const AttendOperands& o, const AttendNumbers& n,
                               int position, int block, int blocks, int warps, u8* shared) {
  const AttendShape s = kMatrix ? attend_matrix_shape(n.heads, n.kv_heads, n.head_dim)
                                : attend_shape(n.heads, n.kv_heads, n.head_dim, Kv::bytes);
  const AttendShares shares = attend_shares<Kv>(n, position, blocks);
  LATHE_UNROLL(1)
  for (int round = 0; round < ceil_div(n.kv_heads, blocks); ++round) {
    const int item = round * blocks + block;
    if (item >= n.kv_heads * shares.parts) return;
    const int kv_head = item % n.kv_heads, part = item / n.kv_heads;
    if (shares.by_heads) {
      attend_short<Kv>(e, o, n, position, kv_head, part, warps, shared);
    } else if constexpr (kMatrix) {
      if (attend_without_matrix(n.window, n.heads / n.kv_heads, n.head_dim, most_splits(n, blocks)))
        continue;
      if (e.polled || round > 0) block_barrier();
      attend_matrix_split_of<kPadded>(e, o, n, s, position, kv_head, part, shares.parts, warps,
                                      shared);
    } else {
      if (e.polled || round > 0) block_barrier();
      attend_split_of<Kv, kPadded>(e, o, n, s, position, kv_head, part, shares.parts, warps,
                                   shared);
    }
  }
}

// As a kernel of its own: kv_heads x splits blocks, vectors handed over between launches.
#define LATHE_ATTEND_OP(name, Kv, kMatrix)                                                         \
  LATHE_OP name(const f32* qkv, const f32* q_norm, const f32* k_norm, const f32* frequencies,      \
                const i32* position, u8* k_cache, u8* v_cache, f32* partial, i32* counters,        \
                f32* y, int heads, int kv_heads, int head_dim, int rotary, int halves, int window, \
                int splits, int warps, f32 epsilon, f32 scale) {                                   \
    attend_phase<Kv, kMatrix>(                                                                     \
        {0, 0, nullptr},                                                                           \
        {qkv, q_norm, k_norm, frequencies, k_cache, v_cache, partial,                              \
         reinterpret_cast<u32*>(counters), y},                                                     \
        {heads, kv_heads, head_dim, rotary, halves, window, splits, epsilon, scale}, *position,    \
        block_x(), kv_heads * splits, warps, shared_memory());                                     \
  }

LATHE_ATTEND_OP(attend_f32, KvRowsF32, false)
LATHE_ATTEND_OP(attend_f16, KvRowsF16, false)
LATHE_ATTEND_OP(attend_q8_0, KvRowsQ8, false)
LATHE_ATTEND_OP(attend_f16_matrix, KvRowsF16, true)

}  // namespace lathe::dev
