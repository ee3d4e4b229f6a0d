// Owns how the parts of a softmax become one in fused attention: the lanes and warps of a block
// through shared memory, the splits of a KV head through scratch memory and a counter.
#pragma once

#include "ops/attend_vectors.h"

namespace lathe::dev {

// A warp's part of a softmax. A lane has the scores of heads head ... head + s.kept - 1 of its team
// in row tile_row of each tile; maximum and sum are theirs, the sum that of the lane's own weights.
// Of the lanes with the same scores `only` one writes.
template <int kPadded>
struct AttendState {
  enum : int { vec = kPadded > 4 ? 4 : 8, most_kept = 4 };
  int tile_row, head;
  bool only;
  f32 maximum[most_kept], sum[most_kept];
  f32 acc[kPadded][vec];  // per head of the team, the lane's values
};

template <int kPadded>
LATHE_DEVICE AttendState<kPadded> attend_state(const AttendShape& s) {
  enum : int { vec = AttendState<kPadded>::vec };
  AttendState<kPadded> state;
  const int lane = lane_index() % s.lanes;
  // Passes in pairs: the upper half of a row's lanes has the second of each pair.
  const int part = lane / s.span, pairs = s.passes / 2;
  state.tile_row = (part % pairs * 2 + part / pairs) * s.rows + lane_index() / s.lanes;
  state.head = lane % s.span / s.copies * s.kept;
  state.only = lane % s.copies == 0;
  LATHE_UNROLL(4)
  for (int i = 0; i < AttendState<kPadded>::most_kept; ++i) {
    state.maximum[i] = -3.0e38f;
    state.sum[i] = 0;
  }
  LATHE_UNROLL(8)
  for (int h = 0; h < kPadded; ++h) {
    LATHE_UNROLL(8)
    for (int i = 0; i < vec; ++i) state.acc[h][i] = 0;
  }
  return state;
}

// Leaves the block's result in the slots, and its maxima. The team's heads are those from team_head
// on, less `before` that another team has; the lane has values `at` ... of the rows `row`.
template <int kPadded>
LATHE_DEVICE void block_result(AttendState<kPadded>& state, const AttendShape& s,
                               const AttendShared& m, int row, int at, int team, int member,
                               int team_head, int before, int head_dim, int warps, u8* shared) {
  enum : int { vec = AttendState<kPadded>::vec };
  f32* maxima = reinterpret_cast<f32*>(shared + m.maxima);
  f32* block_maxima = maxima + warps * kPadded;
  const int members = warps / s.teams;
  const bool writes = state.only && state.tile_row == 0;
  LATHE_UNROLL(4)
  for (int i = 0; i < AttendState<kPadded>::most_kept; ++i) {
    if (i >= s.kept) continue;
    LATHE_UNROLL(5)
    for (int mask = kWarp / 2; mask >= s.span; mask /= 2)
      state.sum[i] = state.sum[i] + shuffle_xor(state.sum[i], mask);
    if (writes) maxima[warp_index() * kPadded + state.head + i] = state.maximum[i];
  }
  block_barrier();
  f32 factor[AttendState<kPadded>::most_kept];
  LATHE_UNROLL(4)
  for (int i = 0; i < AttendState<kPadded>::most_kept; ++i) {
    if (i >= s.kept) continue;
    f32 top = -3.0e38f;
    LATHE_UNROLL(16)
    for (int w = 0; w < members; ++w) {
      const f32 other = maxima[(w * s.teams + team) * kPadded + state.head + i];
      top = other > top ? other : top;
    }
    factor[i] = exponential(state.maximum[i] - top);
    const int h = state.head + i;
    if (writes && member == 0 && h >= before && h < s.heads) block_maxima[team_head + h] = top;
  }
  // All rows of the warp into one, each lane with fewer of the values.
  const int count = vec / s.rows;
  LATHE_UNROLL(8)
  for (int h = 0; h < kPadded; ++h) {
    if (h >= s.heads) continue;
    const f32 f = shuffle(factor[h % s.kept], h / s.kept * s.copies);
    LATHE_UNROLL(8)
    for (int i = 0; i < vec; ++i) state.acc[h][i] = state.acc[h][i] * f;
    LATHE_UNROLL(3)
    for (int mask = kWarp / 2; mask >= s.lanes; mask /= 2) {
      const int half = vec * mask / kWarp;
      const bool upper = (lane_index() & mask) != 0;
      LATHE_UNROLL(4)
      for (int i = 0; i < vec / 2; ++i) {
        if (i >= half) continue;
        const f32 kept = upper ? state.acc[h][half + i] : state.acc[h][i];
        const f32 given = upper ? state.acc[h][i] : state.acc[h][half + i];
        state.acc[h][i] = kept + shuffle_xor(given, mask);
      }
    }
  }
  f32* slot = reinterpret_cast<f32*>(shared) + member % m.slots * m.slot_floats;
  LATHE_UNROLL(1)
  for (int round = 0; round < ceil_div(members, m.slots); ++round) {
    if (member / m.slots == round) {
      LATHE_UNROLL(8)
      for (int h = 0; h < kPadded; ++h) {
        if (h >= s.heads) continue;
        f32* out = slot + (team_head + h) * head_dim + at + row * count;
        LATHE_UNROLL(8)
        for (int i = 0; i < vec; ++i) {
          if (i >= count || h < before || at >= head_dim) continue;
          out[i] = round > 0 ? out[i] + state.acc[h][i] : state.acc[h][i];
        }
      }
      LATHE_UNROLL(4)
      for (int i = 0; i < AttendState<kPadded>::most_kept; ++i) {
        if (i >= s.kept) continue;
        const int h = state.head + i;
        f32* out = slot + s.group * head_dim + team_head + h;
        const f32 sum = state.sum[i] * factor[i];
        if (writes && h >= before && h < s.heads) *out = round > 0 ? *out + sum : sum;
      }
    }
    block_barrier();
  }
}

// The sum of one column over the slots that warps have filled.
LATHE_DEVICE f32 slot_sum(const f32* slots, const AttendShape& s, const AttendShared& m, int column,
                          int warps) {
  f32 sum = slots[column];
  LATHE_UNROLL(16)
  for (int i = 1; i < min_int(m.slots, warps / s.teams); ++i)
    sum = sum + slots[i * m.slot_floats + column];
  return sum;
}

// Where a KV head's results go, whose first is value `first` of all heads'; the i-th of them is
// value(i).
LATHE_DEVICE f32* results_from(const AttendOperands& o, int first) {
  return o.y + first;
}
template <class Value>
LATHE_DEVICE void send_results(const Exchange& e, f32* y, int values, int threads, Value value) {
  LATHE_UNROLL(1)
  for (int i = thread_index(); i < values; i += threads) send(e, y + i, value(i));
}

// Merges the splits of a KV head, in their order, into y.
template <class Results>
LATHE_DEVICE void merge_splits(const Exchange& e, const f32* partial, const Results& y, int group,
                               int head_dim, int splits, int most_splits, int warps, u8* shared) {
  enum : int { at_once = 16 };
  const int values = group * head_dim, stride = attend_partial_floats(group, head_dim);
  const int threads = warps * kWarp, items = splits * group;
  f32* maxima = reinterpret_cast<f32*>(shared);
  f32* totals = maxima + most_splits * group;
  f32* factors = totals + most_splits * group;
  const u32* words = reinterpret_cast<const u32*>(partial);
  u32 early[at_once];
  LATHE_UNROLL(16)
  for (int i = 0; i < at_once; ++i)
    early[i] = load_relaxed(words + static_cast<i64>(min_int(i, splits - 1)) * stride +
                            min_int(thread_index(), values - 1));
  LATHE_UNROLL(1)
  for (int i = thread_index(); i < items; i += threads) {
    const u64 pair = load_relaxed(reinterpret_cast<const u64*>(
        words + static_cast<i64>(i / group) * stride + values + i % group * 2));
    maxima[i] = as_f32(static_cast<u32>(pair));
    totals[i] = as_f32(static_cast<u32>(pair >> 32));
  }
  block_barrier();
  LATHE_UNROLL(1)
  for (int i = thread_index(); i < items; i += threads) {
    f32 top = -3.0e38f;
    LATHE_UNROLL(8)
    for (int j = i % group; j < items; j += group) top = maxima[j] > top ? maxima[j] : top;
    factors[i] = exponential(maxima[i] - top);
  }
  block_barrier();
  send_results(e, y, values, threads, [&](int column) {
    const int head = column / head_dim;
    f32 value = 0, total = 0;
    LATHE_UNROLL(1)
    for (int s = 0; s < splits; s += at_once) {
      if (s > 0 || column >= threads) {
        LATHE_UNROLL(16)
        for (int i = 0; i < at_once; ++i)
          early[i] =
              load_relaxed(words + static_cast<i64>(min_int(s + i, splits - 1)) * stride + column);
      }
      LATHE_UNROLL(16)
      for (int i = 0; i < at_once; ++i) {
        if (s + i < splits) {
          const f32 factor = factors[(s + i) * group + head];
          value = fma(as_f32(early[i]), factor, value);
          total = fma(totals[(s + i) * group + head], factor, total);
        }
      }
    }
    return divide(value, total);
  });
}

// From the slots to y, or to scratch memory and, in the last block to come there, on to y.
template <class Operands>
LATHE_DEVICE void finish_split(const Exchange& e, const Operands& o, const AttendNumbers& n,
                               const AttendShape& s, const AttendShared& m, int kv_head, int split,
                               int splits, int warps, u8* shared) {
  const int d = n.head_dim, values = s.group * d, threads = warps * kWarp;
  const f32* slots = reinterpret_cast<const f32*>(shared);
  const f32* maxima = reinterpret_cast<const f32*>(shared + m.maxima) + warps * s.padded;
  const auto y = results_from(o, kv_head * values);
  if (splits == 1)
    return send_results(e, y, values, threads, [&](int i) {
      return divide(slot_sum(slots, s, m, i, warps), slot_sum(slots, s, m, values + i / d, warps));
    });
  f32* partial =
      o.partial + static_cast<i64>(kv_head) * n.splits * attend_partial_floats(s.group, d);
  f32* own = partial + split * attend_partial_floats(s.group, d);
  LATHE_UNROLL(1)
  for (int i = thread_index(); i < values; i += threads) own[i] = slot_sum(slots, s, m, i, warps);
  LATHE_UNROLL(1)
  for (int h = thread_index(); h < s.group; h += threads) {
    own[values + 2 * h] = maxima[h];
    own[values + 2 * h + 1] = slot_sum(slots, s, m, values + h, warps);
  }
  u32* last = reinterpret_cast<u32*>(shared + m.maxima) + warps * s.padded + s.group;
  block_barrier();
  if (thread_index() == 0) {
    const u32 arrival = static_cast<u32>(split == 0 ? kArrivals - splits + 1 : 1);
    const u32 before = atomic_add(o.counters + kv_head, arrival);
    *last = (before + arrival) % kArrivals == 0;
  }
  block_barrier();
  if (*last) merge_splits(e, partial, y, s.group, d, splits, n.splits, warps, shared);
}

}  // namespace lathe::dev
