// Owns the matrix-vector phase of decoding: up to three matrices of tiled weights times one vector,
// with everything around it that needs no other block: the RMSNorm of the vector before, bias,
// residual or gated activation after.
//
// A warp turns its tile columns of the vector into integer activations in shared memory, streams
// through its tiles of the block's rows, and leaves its sums in shared memory. Then the block
// meets, the only time in a phase, and some of its warps turn sums into rows while the others go
// on. The norm's factor is applied to the sums.
//
// In a kernel of its own the shape is constant. In a persistent kernel it is data: one copy of this
// code serves all its phases, since a copy for each would not fit the instruction cache, and
// fetching it cost more than the constants saved (docs/performance.md).
#pragma once

#include "ops/phase_rows.h"
#include "ops/phase_vector.h"
#include "ops/tile_pair.h"

namespace lathe::dev {

template <int kTogether>
LATHE_DEVICE int part_of(const OwnTiles& own) {
  return kTogether > 1 ? own.part : own.column;
}

LATHE_DEVICE void leave_rows(f32* sums, f32 row0, f32 row1) {
  const int lane = lane_index(), g = lane / 4, t = lane % 4;
  // Sums over t: even lanes go on with row g, odd ones with row g + 8.
  const f32 other = shuffle_xor(t & 1 ? row0 : row1, 1);
  f32 sum = (t & 1 ? row1 : row0) + other;
  sum += shuffle_xor(sum, 2);
  if (t < 2) sums[g + 8 * t] = sum;
}

// Streams the warp's tiles of the row tiles from `row` on and before `end`, and leaves its partial
// sums, those of row tile i at row place `at + i`. Returns where to go on.
template <class Tile, int kSubs>
LATHE_DEVICE int stream_rows(Phase& phase, const MatvecShape& s, const OwnTiles& own,
                             const SumPlaces& of, int row, int end, int at) {
  const int subs = kSubs > 0 ? kSubs : s.subs;
  const int step = own.groups * of.row_places * 16;
  f32* sums = of.sums + ((at + row) * of.row_places + part_of<1>(own)) * 16;
  const u8* columns = own_columns<1>(phase, own);
  Activation x;
  const int bytes = tile_bytes(Tile::Shape::code_bits, Tile::Shape::scale_bytes, subs);
  // With one column, what it wants of the activations stays in registers.
  if (own.count == 1) load_activation(columns, x);
  LATHE_UNROLL(1)
  for (; row < end; row += own.groups) {
    f32 row0 = 0, row1 = 0;
    LATHE_UNROLL(1)
    for (int j = 0; j < own.count; ++j) {
      const u8* tile = next_tile(phase.stream, phase.slot_bytes, bytes);
      if (own.count > 1) load_activation(columns + j * phase.warps * kColumnBytes, x);
      tile_dot<Tile>(tile, subs, x, row0, row1);
      release_tile<1>(phase.stream, phase.slots, phase.slot_bytes, phase.warps);
    }
    leave_rows(sums, row0, row1);
    sums += step;
  }
  return row;
}

// The same, two neighbouring tiles at once. What one or two columns want of the activations stays
// in registers.
template <class Tile, int kSubs>
LATHE_DEVICE int stream_pairs(Phase& phase, const MatvecShape& s, const OwnTiles& own,
                              const SumPlaces& of, int row, int end, int at) {
  const int subs = kSubs > 0 ? kSubs : s.subs;
  const int step = own.groups * of.row_places * 16;
  f32* sums = of.sums + ((at + row) * of.row_places + part_of<2>(own)) * 16;
  const u8* columns = own_columns<2>(phase, own);
  const int bytes = tile_bytes(Tile::Shape::code_bits, Tile::Shape::scale_bytes, subs);
  Activation x = {}, y = {};
  replace_activation(columns, x);
  if (own.count > 1) replace_activation(columns + kColumnBytes, y);
  LATHE_UNROLL(1)
  for (; row < end; row += own.groups) {
    f32 row0 = 0, row1 = 0;
    const u8* column = columns;
    LATHE_UNROLL(1)
    for (int left = own.count;;) {
      const u8* tile = next_pair(phase.stream, phase.slot_bytes, bytes);
      const bool two = left > 1;
      if (own.count > 2) {
        replace_activation(column, x);
        replace_activation(two ? column + kColumnBytes : column, y);
        column += 2 * kColumnBytes;
      }
      pair_dot<Tile>(tile, two ? tile + bytes : tile, subs, x, y, two, row0, row1);
      release_tile<2>(phase.stream, phase.slots, phase.slot_bytes, phase.warps);
      left -= 2;
      if (left <= 0) break;
    }
    leave_rows(sums, row0, row1);
    sums += step;
  }
  return row;
}

// The same for a format known by its number; `features` has a bit for each that may come. kPossible
// has those that a source knows of while it is written: a compiler gets no other's code, which it
// would optimize before it drops it.
template <int kSubs, int kTogether, u32 kPossible>
LATHE_DEVICE int stream_format(Phase& phase, const MatvecShape& s, const OwnTiles& own,
                               const SumPlaces& of, int format, u32 features, int row, int end,
                               int at) {
#define LATHE_TILE_CASE(number, Tile)                                                  \
  if constexpr ((kPossible >> number & 1u) != 0) {                                     \
    if ((features >> number & 1u) && format == number)                                 \
      row = kTogether > 1 ? stream_pairs<Tile, kSubs>(phase, s, own, of, row, end, at) \
                          : stream_rows<Tile, kSubs>(phase, s, own, of, row, end, at); \
  }
  LATHE_TILE_CASE(kTileQ4_0, TileQ4_0)
  LATHE_TILE_CASE(kTileQ4_1, TileQ4_1)
  LATHE_TILE_CASE(kTileQ5_0, TileQ5_0)
  LATHE_TILE_CASE(kTileQ5_1, TileQ5_1)
  LATHE_TILE_CASE(kTileQ8_0, TileQ8_0)
  LATHE_TILE_CASE(kTileQ4_K, TileQ4_K)
  LATHE_TILE_CASE(kTileQ5_K, TileQ5_K)
  LATHE_TILE_CASE(kTileQ6_K, TileQ6_K)
  LATHE_TILE_CASE(kTileQ2_K, TileQ2_K)
  LATHE_TILE_CASE(kTileQ3_K, TileQ3_K)
  LATHE_TILE_CASE(kTileIQ4_NL, TileIQ4_NL)
  LATHE_TILE_CASE(kTileIQ4_XS, TileIQ4_XS)
  LATHE_TILE_CASE(kTileMXFP4, TileMXFP4)
  LATHE_TILE_CASE(kTileF16, TileF16)
  LATHE_TILE_CASE(kTileBF16, TileBF16)
#undef LATHE_TILE_CASE
  return row;
}

// Element m of three, without an address: in a kernel of its own they are registers.
LATHE_DEVICE int of_matrix(const i32 (&of)[3], int m) {
  return m == 0 ? of[0] : m == 1 ? of[1] : of[2];
}

// One phase. The matrices' rows are those of y, one after the other; or the first two are gate and
// up with kGatedRows. See load_vector() for norm, post and the streams. `features` is constant: a
// bit for each format that may come, and kJoins; kPossible, the same or more. kSubs is that of all
// phases, or 0 for what s says; kTogether, the number of tiles that a warp multiplies at once;
// kPersistent, whether this is a phase of a persistent kernel.
//
// The row tiles are taken in order, s.batch at a time; of gated rows first the gates', then the
// ups', and no batch has some of both unless it has all.
template <int kSubs, int kTogether, u32 kPossible = ~0u, bool kPersistent = false>
LATHE_DEVICE void matvec(Phase& phase, const MatvecShape& s, const MatvecOperands& o,
                         u32 features) {
  const OwnTiles own = own_tiles<kTogether>(phase.stream.warp, phase.warps, s.columns, s.inverse);
  int row = own.group, matrix = 0;
  // Read while the vector is waited for: a persistent kernel has the shape in shared memory, and
  // whatever is read later delays the products.
  i32 counts[3] = {}, formats[3] = {};
  int most = 0, batch = 0, floats = 0, row_places = 0;
  bool gated = false;
  AddedToRow added = {};
  // In a program that joins vectors some have been waited for when a column is first looked at.
  constexpr bool kEarly = kPersistent && (kPossible & kJoins) != 0;
  const f32 squares = load_vector<kSubs, kTogether, kEarly>(phase, s, o, features, own, [&] {
    look_ahead<kTogether>(phase.stream, phase.slots, phase.slot_bytes, phase.warps);
    LATHE_UNROLL(3)
    for (int m = 0; m < 3; ++m) {
      counts[m] = s.count[m];
      formats[m] = s.format[m];
    }
    gated = s.kind == kGatedRows;
    most = s.most;
    batch = s.batch;
    floats = s.sums;
    row_places = sum_places(s.columns, phase.warps, kTogether);
    const int place = first_finished(phase);
    if (place < most) added = added_to_row(phase, s, o, place);
  });
  const int last = gated ? 2 * most : most, share = counts[0] + counts[1] + counts[2];
  const bool at_once = batch >= last;
  LATHE_UNROLL(1)
  for (int at = 0; at < last;) {
    int end = at + batch;
    if (gated && !at_once && at < most) end = min_int(end, most);
    const SumPlaces of = {partial_sums(phase, floats), row_places};
    // Row tiles [before, before + count) of the numbering are this matrix's. In a persistent kernel
    // there is no turn after the share's last: an empty one delays the phase by some 400 clocks.
    int before = 0;
    LATHE_UNROLL(1)
    for (int m = 0; m < 3; ++m) {
      if constexpr (kPersistent) {
        if (m > 0 && before >= share) break;
      }
      const int count = of_matrix(counts, m);
      const int base = gated && !at_once ? m * most : before;
      const int stop = min_int(end - base, count);
      if (stop > 0 && at < base + count && own.count > 0) {
        if (m != matrix) row = own.group;
        matrix = m;
        row = stream_format<kSubs, kTogether, kPossible>(phase, s, own, of, of_matrix(formats, m),
                                                         features, row, stop, base - at);
      }
      before += count;
    }
    // Wanted at the barrier, not before the products.
    if (at == 0 && o.norm) leave_square_sum(phase, phase.squares, squares);
    const bool gates = gated && at < most;
    const int from = gated && !gates ? at - most : at;
    const int to = min_int(gated && !gates ? end - most : end, gated ? counts[0] : before);
    const int part = !gated ? kRows : at_once ? kGateAndUp : gates ? kGateOnly : kUpOnly;
    finish_rows(phase, s, o, of, from, max_int(to - from, 0), part, added, at == 0);
    ++phase.turn;
    at = end;
  }
  phase.squares ^= 1;
}

// The phase as a kernel of its own. The weights' first tiles are on their way before the vector is
// waited for.
template <int kTogether>
LATHE_DEVICE void matvec_block(const u8* w_a, const u8* w_b, const u8* w_c, const f32* from,
                               const f32* norm, const f32* post, const f32* stream_in,
                               f32* stream_out, const f32* bias_a, const f32* bias_b,
                               const f32* bias_c, const f32* residual, f32* y, int k, int subs,
                               int n_a, int n_b, int n_c, int format_a, int format_b, int format_c,
                               int bytes_a, int bytes_b, int bytes_c, int kind, int activation,
                               int blocks, int warps, int slots, int slot_bytes, f32 epsilon) {
  u8* shared = shared_memory();
  allow_dependents();
  const int ring = stream_bytes(warps, slots, slot_bytes);
  const int columns = ceil_div(ceil_div(k, 64) * 2, subs);
  MatvecShape s = {};
  s.k = k;
  s.subs = subs;
  s.columns = columns;
  s.inverse = column_inverse(columns, kTogether);
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
  share_phase(s, block_x(), blocks);
  place_sums(s, warps, kTogether, 0);
  const MatvecOperands o = {from,     norm,       post, stream_in, {bias_a, bias_b, bias_c},
                            residual, stream_out, y};
  StreamEntry* entries = reinterpret_cast<StreamEntry*>(shared + ring + kPhaseScratch +
                                                        column_bytes(columns, warps, kTogether));
  if (thread_index() == 0) {
    const u8* matrices[3] = {w_a, w_b, w_c};
    const int bytes[3] = {bytes_a, bytes_b, bytes_c};
    LATHE_UNROLL(3)
    for (int m = 0; m < 3; ++m)
      entries[m] = stream_entry(matrices[m] + static_cast<i64>(s.first[m]) * (columns * bytes[m]),
                                s.count[m], columns, bytes[m], kTogether);
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
  phase.squares = 0;
  phase.best = 0;
  open_stream<kTogether>(phase.stream, shared, entries, 3, 1, slots, slot_bytes, warps);
  wait_for_predecessor();
  const u32 features = 1u << format_a | 1u << format_b | 1u << format_c | (post ? kJoins : 0u);
  matvec<0, kTogether>(phase, s, o, features);
}

#define LATHE_MATVEC_OP(name, together)                                                            \
  LATHE_OP name(const u8* w_a, const u8* w_b, const u8* w_c, const f32* from, const f32* norm,     \
                const f32* post, const f32* stream_in, f32* stream_out, const f32* bias_a,         \
                const f32* bias_b, const f32* bias_c, const f32* residual, f32* y, int k,          \
                int subs, int n_a, int n_b, int n_c, int format_a, int format_b, int format_c,     \
                int bytes_a, int bytes_b, int bytes_c, int kind, int activation, int blocks,       \
                int warps, int slots, int slot_bytes, f32 epsilon) {                               \
    matvec_block<together>(w_a, w_b, w_c, from, norm, post, stream_in, stream_out, bias_a, bias_b, \
                           bias_c, residual, y, k, subs, n_a, n_b, n_c, format_a, format_b,        \
                           format_c, bytes_a, bytes_b, bytes_c, kind, activation, blocks, warps,   \
                           slots, slot_bytes, epsilon);                                            \
  }
LATHE_MATVEC_OP(matvec_kernel, 1)
LATHE_MATVEC_OP(matvec_pairs_kernel, 2)
#undef LATHE_MATVEC_OP

}  // namespace lathe::dev
