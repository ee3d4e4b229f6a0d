// Owns the way of a phase's vector into shared memory: received from other blocks or from memory,
// joined to the residual stream, multiplied by a norm's weights, and rounded to activations.
//
// A warp brings what it will itself multiply, its own tile columns, and nobody else's: it waits for
// no other warp of the block, and only for the blocks that compute these values.
#pragma once

#include "ops/activations.h"
#include "ops/phase.h"

namespace lathe::dev {

// The lane's values of one tile column: lane 4g + t has values 4t ... 4t + 3 and 16 + 4t ... of
// sub-block g.
struct ColumnValues {
  f32 v[8];
};
struct ColumnLook {
  u32x4 seen[2];
};

// Where they are in the vector. A lane without any looks where the first lanes look, for nothing:
// at one place for all blocks and columns, such as the vector's beginning, they would queue.
struct ColumnPlace {
  int at;
  bool there;
};
LATHE_DEVICE ColumnPlace column_place(int k, int subs, int column, int lane) {
  const int g = lane / 4;
  const int first = column * subs * 32 + 4 * (lane % 4), at = first + g * 32;
  const bool there = g < subs && at < k;
  return {there ? at : first, there};
}

LATHE_DEVICE ColumnLook look_at_column(const Exchange& e, const f32* at) {
  return {{look(e, at), look(e, at + 16)}};
}

// Each lane asks again for what it misses, and for no more: that is the L2 cache's bandwidth, which
// the weights of the blocks that are late want. If one lane asked for its warp, what the others
// miss would be asked for a way to the cache and back later.
template <int kTogether>
LATHE_DEVICE ColumnValues receive_column(const Phase& phase, const f32* at, ColumnLook column) {
  const Exchange& e = phase.exchange;
  u32x4(&seen)[2] = column.seen;
  if (e.polled) {
    LATHE_UNROLL(1)
    for (int polls = 0;; ++polls) {
      const u32 first = not_arrived(seen[0], e.tag), second = not_arrived(seen[1], e.tag);
      if (ballot((first | second) != 0) == 0) break;
      // All lanes leave together.
      if (ballot(give_up(e, polls)) != 0) break;
      if (first) seen[0] = look(e, at);
      if (second) seen[1] = look(e, at + 16);
      if constexpr (kTogether > 1)
        if (polls % 2 == 0 && elected())
          prefetch_copy<kTogether>(phase.stream, phase.slots, phase.warps);
    }
  }
  const f32x4 a = without_tags(seen[0]), b = without_tags(seen[1]);
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

// Values that no one is writing: a norm's weights.
LATHE_DEVICE ColumnValues load_column(const f32* from, int at) {
  const u32x4 a = stream_u32x4(from + at), b = stream_u32x4(from + at + 16);
  return {{as_f32(a.x), as_f32(a.y), as_f32(a.z), as_f32(a.w), as_f32(b.x), as_f32(b.y),
           as_f32(b.z), as_f32(b.w)}};
}

LATHE_DEVICE f32 sum_of_squares(const ColumnValues& x) {
  f32 sum = 0;
  LATHE_UNROLL(8)
  for (int i = 0; i < 8; ++i) sum = fma(x.v[i], x.v[i], sum);
  return sum;
}

// The normed vector plus the residual stream, in place of the vector; it is the new stream, which
// the blocks hand on, each some columns of it.
template <int kTogether>
LATHE_DEVICE void join_stream(const Phase& phase, const MatvecOperands& o, const ColumnPlace& place,
                              bool ours, f32 factor, ColumnValues& x) {
  const ColumnValues weights = load_column(o.post, place.at);
  const f32* stream = o.stream_in + place.at;
  const Exchange& e = phase.exchange;
  const ColumnValues old = receive_column<kTogether>(phase, stream, look_at_column(e, stream));
  LATHE_UNROLL(8)
  for (int i = 0; i < 8; ++i) {
    f32& v = x.v[i];
    v = fma(v * factor, weights.v[i], old.v[i]);
    if (ours && place.there) send(e, o.stream_out + place.at + i / 4 * 16 + i % 4, v);
    v = as_f32(as_u32(v) & ~1u);  // as whoever reads the stream later will see it
  }
}

// From a warp's column to its next: they are neighbours when it multiplies two at once.
template <int kTogether>
LATHE_DEVICE int column_step(const Phase& phase) {
  return kTogether > 1 ? 1 : phase.warps;
}
// Where the activations of the warp's first column lie; those of the others follow, so many
// column_step() apart.
template <int kTogether>
LATHE_DEVICE u8* own_columns(const Phase& phase, const OwnTiles& own) {
  return phase.columns + (kTogether > 1 ? own.place : phase.stream.warp) * kColumnBytes;
}

// The first half of a vector's way when it is still to be normed and joined to the residual stream.
template <int kTogether>
LATHE_DEVICE f32 joining_factor(Phase& phase, const MatvecShape& s, const MatvecOperands& o,
                                const OwnTiles& own, int subs) {
  const Exchange& e = phase.exchange;
  f32 squares = 0;
  LATHE_UNROLL(1)
  for (int j = 0; j < own.count; ++j) {
    const ColumnPlace place =
        column_place(s.k, subs, own.column + j * column_step<kTogether>(phase), lane_index());
    const f32* from = o.from + place.at;
    const ColumnValues x = receive_column<kTogether>(phase, from, look_at_column(e, from));
    if (place.there) squares += sum_of_squares(x);
  }
  leave_square_sum(phase, kJoinedSquares, own.group == 0 ? squares : 0.0f);
  block_barrier();
  return inverse_rms(phase, kJoinedSquares, s.inverse_k, s.epsilon);
}

// Fills the warp's places of phase.columns with the activations of its columns, times the norm's
// weights if there are any. Returns the lane's share of the vector's sum of squares, or 0 without a
// norm. `meanwhile` is called while the vector is on its way: after the first look at it, or kEarly
// before.
template <int kSubs, int kTogether, bool kEarly, class Meanwhile>
LATHE_DEVICE f32 load_vector(Phase& phase, const MatvecShape& s, const MatvecOperands& o,
                             u32 features, const OwnTiles& own, Meanwhile meanwhile) {
  const int subs = kSubs > 0 ? kSubs : s.subs, k = s.k;
  const f32 *from = o.from, *norm = o.norm;
  const Exchange& e = phase.exchange;
  const bool joins = (features & kJoins) && o.post;
  f32 factor = 0, squares = 0;
  if constexpr (kEarly) meanwhile();
  if (joins) factor = joining_factor<kTogether>(phase, s, o, own, subs);
  int column = own.column;
  // Kept: it takes longer to ask for than a column can wait.
  const int lane = static_cast<int>(pinned(static_cast<u32>(lane_index())));
  ColumnPlace place = column_place(k, subs, column, lane);
  ColumnLook seen = {};
  ColumnValues weights = {{1, 1, 1, 1, 1, 1, 1, 1}};
  if (own.count > 0) {
    seen = look_at_column(e, from + place.at);
    if (norm) weights = load_column(norm, place.at);
  }
  if constexpr (!kEarly) meanwhile();
  if (own.count > 0) {
    u8* to = own_columns<kTogether>(phase, own);
    LATHE_UNROLL(1)
    for (int left = own.count;;) {
      ColumnValues x = receive_column<kTogether>(phase, from + place.at, seen);
      if (joins)
        join_stream<kTogether>(phase, o, place,
                               own.group == 0 && column % phase.blocks == phase.block, factor, x);
      const bool there = place.there;
      if (norm) squares += there ? sum_of_squares(x) : 0.0f;
      LATHE_UNROLL(8)
      for (int i = 0; i < 8; ++i) x.v[i] = x.v[i] * weights.v[i];
      // The next column is on its way while this one is rounded.
      if (--left > 0) {
        column += column_step<kTogether>(phase);
        place = column_place(k, subs, column, lane);
        seen = look_at_column(e, from + place.at);
        if (norm) weights = load_column(norm, place.at);
      }
      store_activation(to, lane, there, x.v);
      if (left == 0) break;
      to += column_step<kTogether>(phase) * kColumnBytes;
    }
  }
  warp_barrier();
  return own.group == 0 ? squares : 0.0f;
}

}  // namespace lathe::dev
