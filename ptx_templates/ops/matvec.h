// Owns the matrix-vector phase of decoding: up to three matrices of tiled weights times one vector,
// with everything around it that needs no other block: the RMSNorm of the vector before, bias,
// residual or gated activation after.
//
// The block turns the vector into integer activations in shared memory, each warp some tile columns
// of it; then the warps stream through the tiles of the block's rows, and their sums meet in shared
// memory. The norm's factor is applied to the sums.
//
// In a kernel of its own the shape is constant. In a persistent kernel it is data: one copy of this
// code serves all its phases, since a copy for each would not fit the instruction cache, and
// fetching it cost more than the constants saved (docs/performance.md).
#pragma once

#include "ops/vector_runs.h"

namespace lathe::dev {

// A warp's sums go to place row * places(columns) + its own; as many warps meet in a row tile.
LATHE_DEVICE int places(const Phase& phase, const MatvecShape& s) {
  return min_int(s.columns, phase.warps);
}

LATHE_DEVICE void leave_rows(f32* sums, int place, f32 row0, f32 row1) {
  const int lane = lane_index(), g = lane / 4, t = lane % 4;
  // Sums over t: even lanes go on with row g, odd ones with row g + 8.
  const f32 other = shuffle_xor(t & 1 ? row0 : row1, 1);
  f32 sum = (t & 1 ? row1 : row0) + other;
  sum += shuffle_xor(sum, 2);
  if (t < 2) sums[place * 16 + g + 8 * t] = sum;
}

// Where a warp stands in the block's share of a matrix, whose tiles are dealt to the warps in turn.
struct TileCursor {
  int row, column;
};
LATHE_DEVICE TileCursor first_tile(const MatvecShape& s) {
  const int row = warp_index() * s.first_rows >> 16;
  return {row, warp_index() - row * s.columns};
}

// Streams the warp's tiles of the row tiles before `end` and leaves its partial sums; those of row
// tile i at row place `at + i`.
template <class Tile, int kSubs>
LATHE_DEVICE void stream_rows(Phase& phase, const MatvecShape& s, TileCursor& cursor, int end,
                              int at) {
  f32* sums = partial_sums(phase);
  const int warp = warp_index(), count = places(phase, s), columns = s.columns;
  const int step_rows = s.step_rows, step_columns = s.step_columns;
  const int subs = kSubs > 0 ? kSubs : s.subs;
  int row = cursor.row, column = cursor.column;
  f32 row0 = 0, row1 = 0;
  LATHE_UNROLL(1)
  while (row < end) {
    const u8* tile = next_tile(phase.stream, phase.slot_bytes);
    const Activation x = load_activation(phase.columns + column * kColumnBytes, subs);
    tile_dot<Tile>(tile, subs, x, row0, row1);
    release_tile(phase.stream, phase.slots, phase.slot_bytes, phase.warps);
    const int place = (at + row) * count + (step_rows > 0 ? column : warp);
    int next = row + step_rows;
    column += step_columns;
    if (column >= columns) {
      column -= columns;
      ++next;
    }
    if (next != row) {
      leave_rows(sums, place, row0, row1);
      row0 = row1 = 0;
      row = next;
    }
  }
  cursor = {row, column};
  catch_up(phase.stream, phase.slots, phase.slot_bytes, phase.warps);
}

// The same for a format known by its number; `features` has a bit for each that may come.
template <int kSubs>
LATHE_DEVICE void stream_format(Phase& phase, const MatvecShape& s, int format, u32 features,
                                TileCursor& cursor, int end, int at) {
#define LATHE_TILE_CASE(number, Tile) \
  if ((features >> number & 1u) && format == number) stream_rows<Tile, kSubs>(phase, s, cursor, end, at);
  LATHE_TILE_CASE(kTileQ4_0, TileQ4_0)
  LATHE_TILE_CASE(kTileQ4_1, TileQ4_1)
  LATHE_TILE_CASE(kTileQ5_0, TileQ5_0)
  LATHE_TILE_CASE(kTileQ5_1, TileQ5_1)
  LATHE_TILE_CASE(kTileQ8_0, TileQ8_0)
  LATHE_TILE_CASE(kTileQ4_K, TileQ4_K)
  LATHE_TILE_CASE(kTileQ5_K, TileQ5_K)
  LATHE_TILE_CASE(kTileQ6_K, TileQ6_K)
#undef LATHE_TILE_CASE
}

// The sum over warps of row `row` of row place `place`: four lanes share the work, and all have the
// result.
LATHE_DEVICE f32 gather_sum(const f32* sums, int place, int row, int count) {
  const int part = thread_index() % 4;
  const f32* from = sums + (place * count + part) * 16 + row;
  f32 sum = 0;
  LATHE_UNROLL(4)
  for (int i = 0; i < kPhaseWarps / 4; ++i)
    if (part + 4 * i < count) sum += from[64 * i];
  sum += shuffle_xor(sum, 1);
  return sum + shuffle_xor(sum, 2);
}

// Where row `row` of the block's row tile `place` goes: its place in y, or -1 for padding; and the
// place of its bias.
LATHE_DEVICE int output_place(const MatvecShape& s, const MatvecOperands& o, int place, int row,
                              const f32*& bias) {
  int before = 0, rows = s.rows[0], tile = s.first[0] + place;
  bias = o.bias[0];
  if (place >= s.count[0]) {
    place -= s.count[0];
    before = rows;
    rows = s.rows[1];
    tile = s.first[1] + place;
    bias = o.bias[1];
    if (place >= s.count[1]) {
      before += rows;
      rows = s.rows[2];
      tile = s.first[2] + place - s.count[1];
      bias = o.bias[2];
    }
  }
  const int at = tile * 16 + row;
  if (bias) bias += at;
  return at < rows ? before + at : -1;
}

// Turns the partial sums of `count` row tiles into rows, the first of them number `first` of the
// block's, and hands them on. What is added is on its way before the barrier.
LATHE_DEVICE void finish_rows(Phase& phase, const MatvecShape& s, const MatvecOperands& o,
                              int first, int count) {
  const int threads = phase.warps * kWarp, met_in_row = places(phase, s);
  const f32* sums = partial_sums(phase);
  ++phase.turn;
  int index = thread_index() / 4;
  if (index - lane_index() / 4 >= count * 16) {  // nothing for this warp
    block_barrier();
    return;
  }
  bool met = false;
  f32 factor = 1;
  LATHE_UNROLL(1)
  for (; index - lane_index() / 4 < count * 16; index += threads / 4) {
    const bool real = index < count * 16;
    const int place = real ? index / 16 : 0, row = index % 16;
    const f32* bias = nullptr;
    const int at = output_place(s, o, first + place, row, bias);
    const bool mine = real && thread_index() % 4 == 0 && at >= 0;
    f32 added = 0;
    if (mine && bias) added = *bias;
    u32 old = 0;
    if (mine && o.residual) old = look_one(phase.exchange, o.residual + at);
    if (!met) {
      if (o.norm) factor = inverse_rms(phase, 0, s);
      block_barrier();
    }
    met = true;
    f32 value = gather_sum(sums, place, row, met_in_row) * factor;
    if (!mine) continue;
    if (bias) value += added;
    if (o.residual) value += receive_one(phase.exchange, o.residual + at, old);
    if (s.kind == kLogitRows) {
      value = as_f32(as_u32(value) & ~1u);  // as send() would
      o.y[at] = value;
      const u64 rank = logit_rank(value, at);
      phase.best = rank > phase.best ? rank : phase.best;
    } else {
      send(phase.exchange, o.y + at, value);
    }
  }
}

LATHE_DEVICE f32 activated(f32 v, int activation) {
  return activation == kSilu ? silu(v) : gelu_tanh(v);
}

// What becomes of gate and up sums: with kGateAndUp both are there, first the gates' row tiles;
// with kGateOnly a thread keeps the gates that it will itself want with kUpOnly.
enum : int { kGateAndUp, kGateOnly, kUpOnly };
LATHE_DEVICE void finish_gated(Phase& phase, const MatvecShape& s, const MatvecOperands& o, int at,
                               int count, int part) {
  const f32* sums = partial_sums(phase);
  const int threads = phase.warps * kWarp, met_in_row = places(phase, s);
  ++phase.turn;
  int index = thread_index() / 4;
  const bool any = index - lane_index() / 4 < count * 16;
  const f32 factor = any ? inverse_rms(phase, 0, s) : 0.0f;
  block_barrier();
  LATHE_UNROLL(1)
  for (; index - lane_index() / 4 < count * 16; index += threads / 4) {
    const bool real = index < count * 16;
    const int place = real ? index / 16 : 0, row = index % 16;
    const f32 sum = gather_sum(sums, place, row, met_in_row) * factor;
    f32 up = sum, gate = sum;
    if (part == kGateAndUp) up = gather_sum(sums, place + count, row, met_in_row) * factor;
    const int out = (s.first[0] + at + place) * 16 + row;
    if (!real || thread_index() % 4 != 0 || out >= s.rows[0]) continue;
    f32* kept = gate_values(phase) + at * 16 + index;
    if (part == kGateOnly) {
      *kept = gate;
      continue;
    }
    if (part == kUpOnly) gate = *kept;
    send(phase.exchange, o.y + out, activated(gate, s.activation) * up);
  }
}

template <int kSubs>
LATHE_DEVICE void stream_matrix(Phase& phase, const MatvecShape& s, int m, u32 features,
                                TileCursor& cursor, int end, int at) {
  const int format = m == 0 ? s.format[0] : m == 1 ? s.format[1] : s.format[2];
  stream_format<kSubs>(phase, s, format, features, cursor, end, at);
}

// A phase whose sums do not fit at once: the matrices' row tiles one after the other, cut into
// batches, gates and ups in batches of their own.
template <int kSubs>
LATHE_DEVICE void matvec_in_batches(Phase& phase, const MatvecShape& s, const MatvecOperands& o,
                                    u32 features) {
  const bool gated = s.kind == kGatedRows;
  const int end_of_all = gated ? 2 * s.most : s.most;
  const int total = gated ? s.count[0] : s.count[0] + s.count[1] + s.count[2];
  TileCursor cursor = first_tile(s);
  LATHE_UNROLL(1)
  for (int at = 0; at < end_of_all;) {
    int end = at + s.batch;
    if (gated && at < s.most) end = min_int(end, s.most);
    int before = 0;
    LATHE_UNROLL(1)
    for (int m = 0; m < 3; ++m) {
      const int own = m == 0 ? s.count[0] : m == 1 ? s.count[1] : s.count[2];
      const int base = gated ? m * s.most : before;
      const int stop = min_int(end - base, own);
      if (own > 0 && stop > 0 && at < base + own) {
        if (at <= base) cursor = first_tile(s);
        stream_matrix<kSubs>(phase, s, m, features, cursor, stop, base - at);
      }
      before += own;
    }
    if (gated) {
      const bool gates = at < s.most;
      const int from = gates ? at : at - s.most;
      const int stop = min_int(gates ? end : end - s.most, total);
      finish_gated(phase, s, o, from, max_int(stop - from, 0), gates ? kGateOnly : kUpOnly);
    } else {
      finish_rows(phase, s, o, at, max_int(min_int(end, total) - at, 0));
    }
    at = end;
  }
}

// One phase. The matrices' rows are those of y, one after the other; or the first two are gate and
// up with kGatedRows. See load_vector() for norm, post and the streams. `features` is constant: a
// bit for each format that may come, and kJoins. kSubs is that of all phases, or 0 for what s says.
template <int kSubs>
LATHE_DEVICE void matvec(Phase& phase, const MatvecShape& s, const MatvecOperands& o,
                         u32 features) {
  load_vector<kSubs>(phase, s, o, features);
  if (s.batch > 0) {
    matvec_in_batches<kSubs>(phase, s, o, features);
    return;
  }
  // Both halves of the partial sums: the barrier after the next vector keeps the next sums away.
  phase.turn &= ~1u;
  int at = 0;
  LATHE_UNROLL(1)
  for (int m = 0; m < 3; ++m) {
    const int own = m == 0 ? s.count[0] : m == 1 ? s.count[1] : s.count[2];
    if (own > 0) {
      TileCursor cursor = first_tile(s);
      stream_matrix<kSubs>(phase, s, m, features, cursor, own, at);
    }
    at += own;
  }
  if (s.kind == kGatedRows)
    finish_gated(phase, s, o, 0, s.count[0], kGateAndUp);
  else
    finish_rows(phase, s, o, 0, at);
}

// The phase as a kernel of its own. The weights' first tiles are on their way before the vector is
// waited for.
LATHE_OP matvec_kernel(const u8* w_a, const u8* w_b, const u8* w_c, const f32* from,
                       const f32* norm, const f32* post, const f32* stream_in, f32* stream_out,
                       const f32* bias_a, const f32* bias_b, const f32* bias_c, const f32* residual,
                       f32* y, int k, int subs, int n_a, int n_b, int n_c, int format_a,
                       int format_b, int format_c, int bytes_a, int bytes_b, int bytes_c, int kind,
                       int activation, int blocks, int warps, int slots, int slot_bytes,
                       f32 epsilon) {
  u8* shared = shared_memory();
  allow_dependents();
  const int ring = stream_bytes(warps, slots, slot_bytes);
  const int columns = ceil_div(ceil_div(k, 64) * 2, subs);
  MatvecShape s = {};
  s.k = k;
  s.subs = subs;
  s.columns = columns;
  s.step_rows = warps / columns;
  s.step_columns = warps % columns;
  s.first_rows = ceil_div(65536, columns);
  s.rows[0] = n_a;
  s.rows[1] = n_b;
  s.rows[2] = n_c;
  s.format[0] = format_a;
  s.format[1] = format_b;
  s.format[2] = format_c;
  s.kind = kind;
  s.activation = activation;
  s.inverse_k = 1.0f / static_cast<f32>(k);
  s.epsilon = epsilon;
  share_phase(s, block_x(), blocks, warps);
  const MatvecOperands o = {from,     norm,       post, stream_in, {bias_a, bias_b, bias_c},
                            residual, stream_out, y};
  StreamEntry* entries =
      reinterpret_cast<StreamEntry*>(shared + ring + kPhaseScratch + columns * kColumnBytes);
  if (thread_index() == 0) {
    const u8* matrices[3] = {w_a, w_b, w_c};
    const int bytes[3] = {bytes_a, bytes_b, bytes_c};
    LATHE_UNROLL(3)
    for (int m = 0; m < 3; ++m)
      entries[m] = {matrices[m] + static_cast<i64>(s.first[m]) * (columns * bytes[m]),
                    static_cast<u32>(s.count[m] * columns), static_cast<u32>(bytes[m])};
  }
  block_barrier();
  Phase phase;
  phase.exchange = {0, 0, nullptr};
  phase.scratch = shared + ring;
  phase.columns = phase.scratch + kPhaseScratch;
  phase.block = block_x();
  phase.blocks = blocks;
  phase.warps = warps;
  phase.slots = slots;
  phase.slot_bytes = slot_bytes;
  phase.turn = 0;
  phase.best = 0;
  open_stream(phase.stream, shared, entries, 3, 1, slots, slot_bytes, warps);
  wait_for_predecessor();
  const u32 features = 1u << format_a | 1u << format_b | 1u << format_c | (post ? kJoins : 0u);
  matvec<0>(phase, s, o, features);
}

}  // namespace lathe::dev
