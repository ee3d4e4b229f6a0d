// Owns fused attention over a short context, by one block for each query head: the case of the
// first few hundred tokens, where what counts is not bytes but how many steps wait for each other.
//
// First the scores of all positions, four lanes a position. Then each warp has every so many-th
// position: it weighs their values by what they are to the greatest score of all, which is the
// softmax but for its sum. Then the warps' values and weights are summed.
//
// Rows of earlier tokens are on their way to registers before the query is there. All a block asks
// the memory for comes in turn, and the query is waited for longest by whoever asks for it last: so
// it is asked for between keys and values, and what it is turned by before both.
#pragma once

#include "ops/attend_vectors.h"

namespace lathe::dev {

// Rows that a thread has on their way: of keys one for each pass over the positions, of values.
// More warps have fewer registers each, and need fewer rows for the same number of positions; f32
// has fewer positions, for its rows take twice the registers.
enum : int { kShortPasses = 2, kShortValues = 16 };

LATHE_SHAPE int short_ahead(int value_bytes) {
  return value_bytes == 4 ? 64 : 128;
}
LATHE_SHAPE int short_passes(int value_bytes, int warps) {
  return min_int(kShortPasses, ceil_div(short_ahead(value_bytes), warps * 8));
}
LATHE_SHAPE int short_values(int value_bytes, int warps) {
  return min_int(kShortValues, round_up(ceil_div(short_ahead(value_bytes), warps), 4));
}

// A row of keys, 128 values of it at a time: the parts of one of the four lanes that share it.
template <class Kv>
struct ShortKeys {
  KvPart<Kv, 8> part[4];
};

// One KV head in the cache, and the positions in use.
struct ShortHead {
  const u8 *keys, *values;  // of position 0, the head's first value
  i64 stride;               // bytes from position to position
  int d, scale;             // scale: how far behind the head's first value its scales lie
  int first, last;          // positions that are cached; in place of those past the last it is read
};

// How far behind value `at` its scale lies.
template <class Kv>
LATHE_DEVICE int scale_offset(const ShortHead& head, int at) {
  return head.scale - at * Kv::bytes + at / 32 * 2;
}

// Where part i of a row is, for the lane, of the values from `from` on. The query has zeros for
// parts past the row's end, which may be any.
LATHE_DEVICE int key_place(const ShortHead& head, int from, int i) {
  const int at = from + 32 * i + thread_index() % 4 * 8;
  return at < head.d ? at : 0;
}

// The lane's parts of the rows p and p + step.
template <class Kv>
LATHE_DEVICE void load_keys(const ShortHead& head, int p, int step, int passes, int from, int count,
                            ShortKeys<Kv> (&out)[kShortPasses]) {
  LATHE_UNROLL(2)
  for (int j = 0; j < kShortPasses; ++j) {
    if (j >= passes || j * step >= count) break;
    const u8* row = head.keys + min_int(head.first + p + j * step, head.last) * head.stride;
    LATHE_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      if (from + 32 * i >= head.d) break;
      const int at = key_place(head, from, i);
      load_part(row + at * Kv::bytes, scale_offset<Kv>(head, at), out[j].part[i]);
    }
  }
}

// Of the rows p, p + warps ..., the lane's values from `at` on.
template <class Kv>
LATHE_DEVICE void load_values(const ShortHead& head, int p, int warps, int at, int count,
                              KvPart<Kv, 4> (&out)[kShortValues]) {
  LATHE_UNROLL(16)
  for (int u = 0; u < kShortValues; ++u) {
    if (u >= short_values(Kv::bytes, warps) || (u % 4 == 0 && u * warps >= count)) break;
    const int row = min_int(head.first + p + u * warps, head.last);
    load_part(head.values + row * head.stride + at * Kv::bytes, scale_offset<Kv>(head, at), out[u]);
  }
}

// Leaves the scores of all positions in shared memory, and returns the greatest of the thread's.
// `keys` are those of the first passes.
template <class Kv>
LATHE_DEVICE f32 short_scores(const ShortHead& head, int count, int warps, const f32* query,
                              const u8* new_key, ShortKeys<Kv> (&keys)[kShortPasses], f32* scores) {
  const int passes = short_passes(Kv::bytes, warps), step = warps * 8;
  const int quarter = thread_index() % 4;
  f32 top = -3.0e38f;
  LATHE_UNROLL(1)
  for (int base = 0; base < count; base += passes * step) {
    const int p = base + thread_index() / 4;
    f32 even[kShortPasses] = {0, 0}, odd[kShortPasses] = {0, 0};
    LATHE_UNROLL(1)
    for (int from = 0; from < head.d; from += 128) {
      if (base > 0 || from > 0) load_keys(head, p, step, passes, from, count - base, keys);
      f32x4 q[8];
      LATHE_UNROLL(4)
      for (int i = 0; i < 4; ++i) {
        if (from + 32 * i >= head.d) break;
        const f32x4* at = reinterpret_cast<const f32x4*>(query + from + 32 * i + 8 * quarter);
        q[2 * i] = at[0];
        q[2 * i + 1] = at[1];
      }
      LATHE_UNROLL(2)
      for (int j = 0; j < kShortPasses; ++j) {
        if (j >= passes || base + j * step >= count) break;
        if (p + j * step == count - 1) {
          LATHE_UNROLL(4)
          for (int i = 0; i < 4; ++i) {
            if (from + 32 * i >= head.d) break;
            const int at = key_place(head, from, i);
            shared_part(new_key + at * Kv::bytes, head.d - at + at / 32 * 2, keys[j].part[i]);
          }
        }
        LATHE_UNROLL(4)
        for (int i = 0; i < 4; ++i) {
          if (from + 32 * i >= head.d) break;
          f32 key[8];
          Kv::decode(keys[j].part[i], scale_offset<Kv>(head, key_place(head, from, i)), key);
          const f32x4 a = q[2 * i], b = q[2 * i + 1];
          even[j] = fma(key[0], a.x, even[j]);
          odd[j] = fma(key[1], a.y, odd[j]);
          even[j] = fma(key[2], a.z, even[j]);
          odd[j] = fma(key[3], a.w, odd[j]);
          even[j] = fma(key[4], b.x, even[j]);
          odd[j] = fma(key[5], b.y, odd[j]);
          even[j] = fma(key[6], b.z, even[j]);
          odd[j] = fma(key[7], b.w, odd[j]);
        }
      }
    }
    LATHE_UNROLL(2)
    for (int j = 0; j < kShortPasses; ++j) {
      if (j >= passes) break;
      f32 s = even[j] + odd[j];
      s += shuffle_xor(s, 1);
      s += shuffle_xor(s, 2);
      const bool visible = p + j * step < count;
      top = visible && s > top ? s : top;
      if (visible && quarter == 0) scores[p + j * step] = s;
    }
  }
  return top;
}

// The greatest of the warps' maxima, in four chains that do not wait for each other.
LATHE_DEVICE f32 block_maximum(const f32* maxima, int warps) {
  f32 top[4] = {-3.0e38f, -3.0e38f, -3.0e38f, -3.0e38f};
  LATHE_UNROLL(16)
  for (int w = 0; w < warps; ++w) top[w % 4] = maxima[w] > top[w % 4] ? maxima[w] : top[w % 4];
  const f32 a = top[0] > top[1] ? top[0] : top[1], b = top[2] > top[3] ? top[2] : top[3];
  return a > b ? a : b;
}

// Adds weight * values and the weight.
template <class Kv>
LATHE_DEVICE void add_value(const KvPart<Kv, 4>& part, int scale, f32 weight, f32 (&acc)[4],
                            f32& sum) {
  f32 value[4];
  Kv::decode(part, scale, value);
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i) acc[i] = fma(weight, value[i], acc[i]);
  sum += weight;
}

// What attention wants of the new token: the query (0), the new key and the new value, a warp each.
// They are the first warps: the last ones may still be busy with rows of the phase before.
enum : int { kShortVectors = 3 };
LATHE_DEVICE const f32* short_vector(const AttendOperands& o, const AttendNumbers& n,
                                     int query_head, int kv_head, int i) {
  const int kind = n.heads + (i - 1) * n.kv_heads;
  return o.qkv + (i == 0 ? query_head : kind + kv_head) * n.head_dim;
}

// Where they go in shared memory: the query as it is multiplied, key and value rounded to rows of
// the cache.
struct ShortPlaces {
  f32* query;
  int stride;
  f32* fresh;
  u8* packed;
};

// Vectors `i`, i + warps ..., of which the first is there, with the weights of its norm.
template <class Kv>
LATHE_DEVICE void place_vectors(const Exchange& e, const AttendOperands& o, const AttendNumbers& n,
                                int query_head, int kv_head, int i, int warps, HeadLook head,
                                const LanePairs& pairs, f32 (&weights)[2 * kAttendPairs],
                                const ShortPlaces& at) {
  const int d = n.head_dim;
  LATHE_UNROLL(1)
  for (int first = i; i < kShortVectors; i += warps) {
    if (i != first) {
      const f32* from = short_vector(o, n, query_head, kv_head, i);
      head = look_at_head(e, from, d);
      await_head(e, from, d, head);
      if (i < kShortVectors - 1) lane_weights(key_norm(n, o), n, weights);
    }
    f32* to = i == 0 ? at.query : at.fresh + (i - 1) * round_up(d, 4);
    const f32 squares = put_head(head, to, d);
    if (i < kShortVectors - 1)
      turn_head(to, pairs, weights, query_norm(n, o) != nullptr, squares, i == 0 ? n.scale : 1.0f,
                n);
    if (i == 0) {
      if (d + lane_index() < at.stride) to[d + lane_index()] = 0;
    } else {
      Kv::pack(to, at.packed + (i - 1) * kv_row_bytes(Kv::bytes, d), d);
    }
  }
}

// The values of one query head. Begins with what needs no shared memory.
template <class Kv>
LATHE_DEVICE void attend_short(const Exchange& e, const AttendOperands& o, const AttendNumbers& n,
                               int position, int kv_head, int of_group, int warps, u8* shared) {
  const int d = n.head_dim, group = n.heads / n.kv_heads, query_head = kv_head * group + of_group;
  const int first = n.window > 0 ? max_int(0, position - n.window + 1) : 0;
  const int count = uniform(position + 1 - first), warp = warp_index();
  const AttendShort m = attend_short_shared(d, Kv::bytes, warps);
  f32* query = reinterpret_cast<f32*>(shared);
  f32* scores = reinterpret_cast<f32*>(shared + m.scores);
  f32* maxima = reinterpret_cast<f32*>(shared + m.maxima);
  f32* sums = reinterpret_cast<f32*>(shared + m.sums);
  f32* partial = reinterpret_cast<f32*>(shared + m.partial);
  u8* new_key = shared + m.packed;
  const u8* new_value = new_key + kv_row_bytes(Kv::bytes, d);
  const i64 offset = static_cast<i64>(kv_head) * d * Kv::bytes;
  const ShortHead head = {o.k_cache + offset,
                          o.v_cache + offset,
                          kv_position_bytes(Kv::bytes, n.kv_heads * d),
                          d,
                          n.kv_heads * d - kv_head * d + kv_head * d / 32 * 2,
                          first,
                          max_int(position - 1, 0)};
  // In the order in which they are wanted: what is asked for first is there first.
  const bool brings = warp < kShortVectors, turns = warp < kShortVectors - 1;
  Frequency frequencies[kAttendPairs] = {};
  if (turns) {
    LATHE_UNROLL(4)
    for (int t = 0; t < kAttendPairs; ++t)
      if (pair_turns(n, t)) frequencies[t] = pair_frequency(o.frequencies, t);
  }
  // Zeros for rows that are not loaded: undefined, NVRTC gives them two sets of registers, and
  // ptxas spills.
  ShortKeys<Kv> keys[kShortPasses] = {};
  load_keys(head, thread_index() / 4, warps * 8, short_passes(Kv::bytes, warps), 0, count, keys);
  const f32* from = short_vector(o, n, query_head, kv_head, warp);
  HeadLook look = {};
  if (brings) look = look_at_head(e, from, d);
  KvPart<Kv, 4> values[kShortValues] = {};
  load_values(head, warp, warps, 4 * lane_index() < d ? 4 * lane_index() : 0, count, values);
  LanePairs pairs = {};
  f32 weights[2 * kAttendPairs] = {};
  if (turns) {
    pairs = lane_pairs(n, position, [&](int t) { return frequencies[t]; });
    lane_weights(warp == 0 ? query_norm(n, o) : key_norm(n, o), n, weights);
  }
  if (brings) await_head(e, from, d, look);
  block_barrier();
  place_vectors<Kv>(e, o, n, query_head, kv_head, warp, warps, look, pairs, weights,
                    {query, m.stride, reinterpret_cast<f32*>(shared + m.fresh), new_key});
  block_barrier();

  f32 top = short_scores(head, count, warps, query, new_key, keys, scores);
  LATHE_UNROLL(3)
  for (int mask = 4; mask < kWarp; mask *= 2) {
    const f32 other = shuffle_xor(top, mask);
    top = other > top ? other : top;
  }
  if (lane_index() == 0) maxima[warp] = top;
  block_barrier();
  top = block_maximum(maxima, warps);

  const int at_once = short_values(Kv::bytes, warps);
  LATHE_UNROLL(1)
  for (int from = 0; from < d; from += 4 * kWarp) {
    const int at = from + 4 * lane_index();
    const int place = at < d ? at : 0;  // lanes past the end do what the first does, for nothing
    f32 acc[4] = {0, 0, 0, 0}, sum = 0;
    LATHE_UNROLL(1)
    for (int base = 0; base < count; base += at_once * warps) {
      if (base > 0 || from > 0) load_values(head, base + warp, warps, place, count - base, values);
      // Lane u has the weight of row u, the lanes past those the new one's, which goes with the
      // first rows of one warp.
      const bool cached = lane_index() < at_once;
      const int new_one = base == 0 && warp == (count - 1) % warps ? count - 1 : count;
      const int own = cached ? base + warp + lane_index() * warps : new_one;
      const bool used = own < (cached ? count - 1 : count);
      const f32 weight = exponential(scores[used ? own : 0] - top);
      const f32 weights = used ? weight : 0.0f;
      LATHE_UNROLL(4)
      for (int four = 0; four < kShortValues; four += 4) {
        if (four >= at_once || base + four * warps >= count - 1) break;
        LATHE_UNROLL(4)
        for (int u = four; u < four + 4; ++u)
          add_value(values[u], scale_offset<Kv>(head, place), shuffle(weights, u), acc, sum);
      }
      KvPart<Kv, 4> new_part;
      shared_part(new_value + place * Kv::bytes, d - place + place / 32 * 2, new_part);
      add_value(new_part, scale_offset<Kv>(head, place), shuffle(weights, kWarp - 1), acc, sum);
    }
    if (at < d)
      *reinterpret_cast<f32x4*>(partial + warp * d + at) = {acc[0], acc[1], acc[2], acc[3]};
    if (lane_index() == 0) sums[warp] = sum;
  }
  block_barrier();

  LATHE_UNROLL(1)
  for (int i = thread_index(); i < d; i += warps * kWarp) {
    f32 value = 0, sum = 0;
    LATHE_UNROLL(16)
    for (int w = 0; w < warps; ++w) {
      value += partial[w * d + i];
      sum += sums[w];
    }
    send(e, o.y + query_head * d + i, value * reciprocal(sum));
  }
  if (of_group > 0) return;
  LATHE_UNROLL(1)
  for (int i = warp; i < kShortVectors; i += warps)
    if (i > 0)
      store_row<Kv>(new_key + (i - 1) * kv_row_bytes(Kv::bytes, d),
                    (i == 1 ? o.k_cache : o.v_cache) + position * head.stride, kv_head, n.kv_heads,
                    d);
}

}  // namespace lathe::dev
