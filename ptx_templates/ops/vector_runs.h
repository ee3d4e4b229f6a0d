// Owns the way of a phase's vector into shared memory: received from other blocks or from memory,
// joined to the residual stream, multiplied by a norm's weights, and rounded to activations.
#pragma once

#include "ops/activations.h"
#include "ops/phase.h"

namespace lathe::dev {

// A warp takes a vector in runs of 128 values, four a lane, and several runs at once, so that their
// loads share one latency.
enum : int { kRunValues = 4 * kWarp };
template <int kRuns>
struct Runs {
  f32 v[kRuns][4];
};

LATHE_DEVICE void keep(f32 (&v)[4], const f32x4& four) {
  v[0] = four.x;
  v[1] = four.y;
  v[2] = four.z;
  v[3] = four.w;
}

// Reads runs `first`, `first` + warps ... of a vector that other blocks may still be writing, zeros
// past its end.
//
// What is not there yet is asked for again and again by one lane of the warp only, the first that
// misses something: all of them together would take a good part of the L2 cache's bandwidth from
// the weights of the blocks that are late.
template <int kRuns>
LATHE_DEVICE void receive_runs(const Exchange& e, int k, int first, int warps, const f32* from,
                               Runs<kRuns>& x) {
  u32x4 seen[kRuns];
  int at = first * kRunValues + 4 * lane_index();
  LATHE_UNROLL(4)
  for (int j = 0; j < kRuns; ++j) {
    seen[j] = {e.tag, e.tag, e.tag, e.tag};
    if (at + j * warps * kRunValues < k) seen[j] = look(e, from + at + j * warps * kRunValues);
  }
  if (e.polled) {
    LATHE_UNROLL(1)
    for (int polls = 0;; ++polls) {
      const f32* missing = nullptr;
      LATHE_UNROLL(4)
      for (int j = 0; j < kRuns; ++j)
        if (not_arrived(seen[j], e.tag)) missing = from + at + j * warps * kRunValues;
      const u32 lanes = ballot(missing != nullptr);
      if (lanes == 0 || give_up(e, polls)) break;
      if (missing && (lanes & ((1u << lane_index()) - 1)) == 0)
        receive(e, missing, look(e, missing));
      warp_barrier();
      LATHE_UNROLL(4)
      for (int j = 0; j < kRuns; ++j)
        if (not_arrived(seen[j], e.tag)) seen[j] = look(e, from + at + j * warps * kRunValues);
    }
  }
  LATHE_UNROLL(4)
  for (int j = 0; j < kRuns; ++j) keep(x.v[j], without_tags(seen[j]));
}

template <int kRuns>
LATHE_DEVICE f32 sum_of_squares(const Runs<kRuns>& x) {
  f32 sum = 0;
  LATHE_UNROLL(4)
  for (int j = 0; j < kRuns; ++j) {
    LATHE_UNROLL(4)
    for (int i = 0; i < 4; ++i) sum = fma(x.v[j][i], x.v[j][i], sum);
  }
  return sum;
}

// Runs of weights, which no one is writing.
template <int kRuns>
LATHE_DEVICE void load_weights(int k, int first, int warps, const f32* from, Runs<kRuns>& w) {
  const int at = first * kRunValues + 4 * lane_index();
  LATHE_UNROLL(4)
  for (int j = 0; j < kRuns; ++j) {
    f32x4 four = {0, 0, 0, 0};
    if (at + j * warps * kRunValues < k)
      four = *reinterpret_cast<const f32x4*>(from + at + j * warps * kRunValues);
    keep(w.v[j], four);
  }
}

// The normed vector plus the residual stream, in place of the vector; it is the new stream, which the
// blocks hand on, each some runs of it.
LATHE_DEVICE void join_stream(Phase& phase, const MatvecShape& s, const MatvecOperands& o, int run,
                              f32 factor, Runs<1>& x) {
  const Exchange& e = phase.exchange;
  Runs<1> old, weights;
  load_weights(s.k, run, phase.warps, o.post, weights);
  receive_runs(e, s.k, run, phase.warps, o.stream_in, old);
  const int at = run * kRunValues + 4 * lane_index();
  const bool ours = run % phase.blocks == phase.block;
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    f32& v = x.v[0][i];
    v = fma(v * factor, weights.v[0][i], old.v[0][i]);
    if (ours && at < s.k) send(e, o.stream_out + at + i, v);
    v = as_f32(as_u32(v) & ~1u);  // as whoever reads the stream later will see it
  }
}

// The first half of a vector's way when it is still to be normed and joined to the residual stream.
LATHE_DEVICE f32 joining_factor(Phase& phase, const MatvecShape& s, const MatvecOperands& o,
                                int runs) {
  f32 squares = 0;
  LATHE_UNROLL(1)
  for (int run = warp_index(); run < runs; run += phase.warps) {
    Runs<1> x;
    receive_runs(phase.exchange, s.k, run, phase.warps, o.from, x);
    squares += sum_of_squares(x);
  }
  leave_square_sum(phase, 1, squares);
  block_barrier();
  return inverse_rms(phase, 1, s);
}

// Turns runs `first`, `first` + warps ... into activations; returns the sum of squares before the
// norm's weights came in.
template <int kSubs, int kRuns>
LATHE_DEVICE f32 load_runs(Phase& phase, const MatvecShape& s, const MatvecOperands& o, int first,
                           int runs, bool joined, f32 joined_factor) {
  const int subs = kSubs > 0 ? kSubs : s.subs, warps = phase.warps;
  Runs<kRuns> weights, x;
  if (o.norm) load_weights(s.k, first, warps, o.norm, weights);
  receive_runs(phase.exchange, s.k, first, warps, o.from, x);
  if constexpr (kRuns == 1) {
    if (joined) join_stream(phase, s, o, first, joined_factor, x);
  }
  f32 squares = 0;
  if (o.norm) {
    squares = sum_of_squares(x);
    LATHE_UNROLL(4)
    for (int j = 0; j < kRuns; ++j) {
      LATHE_UNROLL(4)
      for (int i = 0; i < 4; ++i) x.v[j][i] = x.v[j][i] * weights.v[j][i];
    }
  }
  // One copy of the code for all runs: they take turns in the first place.
  LATHE_UNROLL(1)
  for (int run = first; run < runs && run < first + kRuns * warps; run += warps) {
    const int sub = run * 4 + lane_index() / 8, column = sub / subs;
    // All lanes take part in the shuffles, also those past the last column's end.
    u8* place = phase.columns + min_int(column, s.columns - 1) * kColumnBytes;
    store_activation(place, column < s.columns, sub - column * subs, x.v[0]);
    LATHE_UNROLL(3)
    for (int a = 0; a + 1 < kRuns; ++a) {
      LATHE_UNROLL(4)
      for (int i = 0; i < 4; ++i) x.v[a][i] = x.v[a + 1][i];
    }
  }
  return squares;
}

// Fills phase.columns with the activations of the vector, times the norm's weights if there are
// any; the sums of squares of lot 0 are then the vector's. With `post` see join_stream(). Ends with
// a barrier.
template <int kSubs>
LATHE_DEVICE void load_vector(Phase& phase, const MatvecShape& s, const MatvecOperands& o,
                              u32 features) {
  const int warp = warp_index(), runs = (s.k + kRunValues - 1) / kRunValues;
  const int padded = (s.columns * (kSubs > 0 ? kSubs : s.subs) + 3) / 4;  // with a last odd sub-block
  const int all = max_int(runs, padded);
  f32 squares = 0;
  if ((features & kJoins) && o.post) {
    const f32 factor = joining_factor(phase, s, o, runs);
    LATHE_UNROLL(1)
    for (int run = warp; run < all; run += phase.warps)
      squares += load_runs<kSubs, 1>(phase, s, o, run, all, true, factor);
  } else {
    LATHE_UNROLL(1)
    for (int first = warp; first < all; first += 4 * phase.warps)
      squares += load_runs<kSubs, 4>(phase, s, o, first, all, false, 0);
  }
  if (o.norm) leave_square_sum(phase, 0, squares);
  block_barrier();
}

}  // namespace lathe::dev
