// Owns fused attention over a short context, by one block for each KV head: the case of the first
// few hundred tokens, where what counts is not bytes but how many different instructions stand in
// the way. All of it is small loops.
//
// First the scores of all positions, four lanes a position; then the softmax, a warp a head; then
// the weighted values, each warp every so many-th position; then the warps' sums. Rows of earlier
// tokens are on their way to registers before the queries are there.
#pragma once

#include "ops/attend_vectors.h"

namespace lathe::dev {

// Query heads of a group that this way takes.
enum : int { kAttendShortHeads = 8 };

// A row of keys, 128 values of it at a time: the parts of one of the four lanes that share it.
template <class Kv>
struct ShortKeys {
  KvPart<Kv, 8> part[4];
};

// One KV head in the cache.
struct ShortHead {
  const u8 *keys, *values;  // of position 0, the head's first value
  i64 stride;               // bytes from position to position
  int d, scale;             // scale: how far behind the head's first value its scales lie
};

template <class Kv>
LATHE_DEVICE void load_keys(const ShortHead& head, int row, int from, ShortKeys<Kv>& out) {
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    const int at = from + 32 * i + thread_index() % 4 * 8;
    if (at < head.d)
      load_part(head.keys + row * head.stride + at * Kv::bytes,
                head.scale - at * Kv::bytes + at / 32 * 2, out.part[i]);
  }
}
// Of positions `first` + p, p + warps ..., the lane's values from `at` on, those of the last cached
// position in place of later ones.
template <class Kv>
LATHE_DEVICE void load_values(const ShortHead& head, int first, int p, int warps, int last, int at,
                              KvPart<Kv, 4> (&out)[4]) {
  LATHE_UNROLL(4)
  for (int u = 0; u < 4; ++u)
    load_part(head.values + min_int(first + p + u * warps, last) * head.stride + at * Kv::bytes,
              head.scale - at * Kv::bytes + at / 32 * 2, out[u]);
}

template <class Kv>
LATHE_DEVICE void attend_short(const Exchange& e, const AttendOperands& o, const AttendNumbers& n,
                               int position, int kv_head, int warps, u8* shared) {
  const int d = n.head_dim, group = n.heads / n.kv_heads;
  const int first = n.window > 0 ? max_int(0, position - n.window + 1) : 0;
  const int count = position + 1 - first, threads = warps * kWarp;
  const AttendShort m = attend_short_shared(group, d, Kv::bytes, warps);
  f32* queries = reinterpret_cast<f32*>(shared);
  f32* weights = reinterpret_cast<f32*>(shared + m.weights);
  f32* sums = reinterpret_cast<f32*>(shared + m.sums);
  f32* partial = reinterpret_cast<f32*>(shared + m.partial);
  const u8* packed = shared + m.packed;
  const int packed_bytes = kv_row_bytes(Kv::bytes, d);
  const ShortHead head = {o.k_cache + static_cast<i64>(kv_head) * d * Kv::bytes,
                          o.v_cache + static_cast<i64>(kv_head) * d * Kv::bytes,
                          kv_position_bytes(Kv::bytes, n.kv_heads * d), d,
                          n.kv_heads * d - kv_head * d + kv_head * d / 32 * 2};
  const int last = max_int(position - 1, 0);  // in the cache; the new row is in shared memory
  const int value_at = 4 * lane_index() < d ? 4 * lane_index() : 0;
  ShortKeys<Kv> keys;
  KvPart<Kv, 4> values[4];
  load_keys(head, min_int(first + thread_index() / 4, last), 0, keys);
  load_values<Kv>(head, first, warp_index(), warps, last, value_at, values);
  attend_vectors<Kv>(e, o, n, position, kv_head, true, warps, d, queries,
                     reinterpret_cast<f32*>(shared + m.fresh), shared + m.packed);
  block_barrier();

  const int quarter = thread_index() % 4;
  LATHE_UNROLL(1)
  for (int base = 0; base < count; base += threads / 4) {
    const int p = base + thread_index() / 4, row = min_int(first + p, position);
    f32 score[kAttendShortHeads];
    LATHE_UNROLL(8)
    for (int h = 0; h < kAttendShortHeads; ++h) score[h] = 0;
    LATHE_UNROLL(1)
    for (int from = 0; from < d; from += 128) {
      if (base > 0 || from > 0) load_keys(head, min_int(row, last), from, keys);
      LATHE_UNROLL(4)
      for (int i = 0; i < 4; ++i) {
        const int at = from + 32 * i + 8 * quarter;
        if (at >= d) break;
        int scale = head.scale - at * Kv::bytes + at / 32 * 2;
        if (row == position) {
          shared_part(packed + at * Kv::bytes, d - at + at / 32 * 2, keys.part[i]);
          scale = 0;
        }
        f32 key[8];
        Kv::decode(keys.part[i], scale, key);
        LATHE_UNROLL(8)
        for (int h = 0; h < kAttendShortHeads; ++h) {
          if (h >= group) break;
          const f32x4* q = reinterpret_cast<const f32x4*>(queries + h * d + at);
          const f32x4 a = q[0], b = q[1];
          f32 s = fma(key[0], a.x, score[h]);
          f32 t = key[1] * a.y;
          s = fma(key[2], a.z, s);
          t = fma(key[3], a.w, t);
          s = fma(key[4], b.x, s);
          t = fma(key[5], b.y, t);
          s = fma(key[6], b.z, s);
          t = fma(key[7], b.w, t);
          score[h] = s + t;
        }
      }
    }
    LATHE_UNROLL(8)
    for (int h = 0; h < kAttendShortHeads; ++h) {
      if (h >= group) break;
      f32 s = score[h];
      s += shuffle_xor(s, 1);
      s += shuffle_xor(s, 2);
      if (quarter == h % 4 && p < count) weights[h * kAttendShortPositions + p] = s;
    }
  }
  block_barrier();

  LATHE_UNROLL(1)
  for (int h = warp_index(); h < group; h += warps) {
    f32* w = weights + h * kAttendShortPositions;
    f32 top = -3.0e38f;
    LATHE_UNROLL(1)
    for (int p = lane_index(); p < count; p += kWarp) top = w[p] > top ? w[p] : top;
    top = warp_max(top);
    f32 sum = 0;
    LATHE_UNROLL(1)
    for (int p = lane_index(); p < count; p += kWarp) {
      const f32 weight = exponential(w[p] - top);
      w[p] = weight;
      sum += weight;
    }
    sum = warp_sum(sum);
    if (lane_index() == 0) sums[h] = sum;
  }
  block_barrier();

  LATHE_UNROLL(1)
  for (int at = 4 * lane_index(); at < round_up(d, 4 * kWarp); at += 4 * kWarp) {
    const int place = at < d ? at : 0;  // lanes past the end do what the first does, for nothing
    const int scale = head.scale - place * Kv::bytes + place / 32 * 2;
    f32 acc[kAttendShortHeads][4];
    LATHE_UNROLL(8)
    for (int h = 0; h < kAttendShortHeads; ++h) {
      LATHE_UNROLL(4)
      for (int i = 0; i < 4; ++i) acc[h][i] = 0;
    }
    // Four positions at once, so that their loads share one latency.
    LATHE_UNROLL(1)
    for (int p = warp_index(); p < count; p += 4 * warps) {
      if (p >= 4 * warps || at >= 4 * kWarp)
        load_values<Kv>(head, first, p, warps, last, place, values);
      LATHE_UNROLL(4)
      for (int u = 0; u < 4; ++u) {
        const int q = p + u * warps;
        int own_scale = scale;
        if (q >= count - 1) {
          shared_part(packed + packed_bytes + place * Kv::bytes, d - place + place / 32 * 2,
                      values[u]);
          own_scale = 0;
        }
        f32 value[4];
        Kv::decode(values[u], own_scale, value);
        LATHE_UNROLL(8)
        for (int h = 0; h < kAttendShortHeads; ++h) {
          if (h >= group) break;
          const f32 weight = q < count ? weights[h * kAttendShortPositions + q] : 0.0f;
          LATHE_UNROLL(4)
          for (int i = 0; i < 4; ++i) acc[h][i] = fma(weight, value[i], acc[h][i]);
        }
      }
    }
    LATHE_UNROLL(8)
    for (int h = 0; h < kAttendShortHeads; ++h) {
      if (h >= group) break;
      if (at < d)
        *reinterpret_cast<f32x4*>(partial + (warp_index() * group + h) * d + at) = {
            acc[h][0], acc[h][1], acc[h][2], acc[h][3]};
    }
  }
  block_barrier();

  LATHE_UNROLL(1)
  for (int i = thread_index(); i < group * d; i += threads) {
    f32 sum = 0;
    LATHE_UNROLL(4)
    for (int w = 0; w < warps; ++w) sum += partial[w * group * d + i];
    send(e, o.y + kv_head * group * d + i, divide(sum, sums[i / d]));
  }
}

}  // namespace lathe::dev
