// Owns the end of a matrix-vector phase: from the warps' partial sums to rows, with the norm's
// factor, bias, residual or gated activation.
#pragma once

#include "ops/phase.h"

namespace lathe::dev {

// Where partial sums go: a warp's of a row tile to place row * row_places + its part.
struct SumPlaces {
  f32* sums;
  int row_places;
};

// Row `row` of row place `place`, summed over the `count` warps that have a part of it; `warps`, a
// constant and no less, bounds the loop. Two neighbouring lanes share the work, and both have the
// result.
LATHE_DEVICE f32 gather_sum(const f32* sums, int place, int row, int count, int warps) {
  const int part = lane_index() % 2;
  const f32* from = sums + (place * count + part) * 16 + row;
  f32 sum = 0;
  LATHE_UNROLL(8)
  for (int i = 0; i < warps / 2; ++i)
    if (part + 2 * i < count) sum += from[32 * i];
  return sum + shuffle_xor(sum, 1);
}

// Where row `row` of the block's row tile `place` goes: its place in y, or -1 for padding; and the
// place of its bias.
LATHE_DEVICE int output_place(const MatvecShape& s, const MatvecOperands& o, int place, int row,
                              const f32*& bias) {
  int before = 0, rows = s.rows[0], tile = s.first[0] + place;
  bias = o.bias[0];
  if (s.kind != kGatedRows && place >= s.count[0]) {
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

// silu(v) or gelu_tanh(v) (ops/math.h) but for the last bits, with one copy of what they share.
LATHE_DEVICE f32 activated(f32 v, int activation) {
  return v * short_sigmoid(activation == kSilu ? v : gelu_argument(v));
}

// What a batch of partial sums is. With kGateAndUp the first half are gates, the other half the ups
// of the same rows; with kGateOnly a lane keeps the gates that it will itself want with kUpOnly.
enum : int { kRows, kGateAndUp, kGateOnly, kUpOnly };

// The first row tile that the warp finishes, of the block's. The last warps begin: where some have
// fewer tile columns than others, or none, it is they, mostly, and whoever finishes rows is late
// for the next phase.
LATHE_DEVICE int first_finished(const Phase& phase) {
  return phase.warps - 1 - phase.stream.warp;
}

// What is added to a lane's row, on its way.
struct AddedToRow {
  int at;     // the row's place in y
  bool mine;  // the lane's to hand on
  f32 bias;   // or 0
  u32 residual;
};
LATHE_DEVICE AddedToRow added_to_row(const Phase& phase, const MatvecShape& s,
                                     const MatvecOperands& o, int place) {
  const f32* bias = nullptr;
  AddedToRow added = {};
  added.at = output_place(s, o, place, lane_index() / 2, bias);
  added.mine = lane_index() % 2 == 0 && added.at >= 0;
  if (added.mine && bias) added.bias = *bias;
  if (added.mine && o.residual) added.residual = look_one(phase.exchange, o.residual + added.at);
  return added;
}

// Turns the partial sums of `count` row tiles into rows, the first of them number `first` of the
// block's, and hands them on; a warp takes a row tile, two lanes a row. Begins with the barrier at
// which the block's sums are there. `added` is what is added to the first row, if that is `known`;
// if not, as in all turns of a phase but its first, it is looked at after the barrier: the code is
// there but once.
LATHE_DEVICE void finish_rows(Phase& phase, const MatvecShape& s, const MatvecOperands& o,
                              const SumPlaces& of, int first, int count, int part, AddedToRow added,
                              bool known) {
  const int row = lane_index() / 2;
  int place = first_finished(phase);
  // Read before the barrier: whatever is read after it, the rows wait for.
  const int kind = s.kind, activation = s.activation;
  const bool normed = o.norm != nullptr;
  const f32 inverse_k = s.inverse_k, epsilon = s.epsilon;
  const f32* residual = o.residual;
  f32* y = o.y;
  block_barrier();
  if (place >= count) return;
  const f32 factor = normed ? inverse_rms(phase, phase.squares, inverse_k, epsilon) : 1.0f;
  LATHE_UNROLL(1)
  for (;; known = false) {
    if (!known) added = added_to_row(phase, s, o, first + place);
    f32 value = gather_sum(of.sums, place, row, of.row_places, phase.warps) * factor;
    if (part != kRows) {
      f32* kept = gate_values(phase) + (first + place) * 16 + row;
      f32 gate = value, up = value;
      if (part == kGateAndUp)
        up = gather_sum(of.sums, place + count, row, of.row_places, phase.warps) * factor;
      if (part == kUpOnly) gate = *kept;
      if (part == kGateOnly && added.mine) *kept = value;
      if (part != kGateOnly) value = activated(gate, activation) * up;
    }
    if (added.mine && part != kGateOnly) {
      value += added.bias;
      if (residual) value += receive_one(phase.exchange, residual + added.at, added.residual);
      if (kind == kLogitRows) {
        value = as_f32(as_u32(value) & ~1u);  // as send() would
        y[added.at] = value;
        const u64 rank = logit_rank(value, added.at);
        phase.best = rank > phase.best ? rank : phase.best;
      } else {
        send(phase.exchange, y + added.at, value);
      }
    }
    place += phase.warps;
    if (place >= count) return;
  }
}

}  // namespace lathe::dev
