// Owns what fused attention does to the projections of one token before it attends: norm and
// rotation of queries and key, the append of key and value to the cache.
#pragma once

#include "ops/exchange.h"
#include "ops/kv_rows.h"
#include "ops/math.h"
#include "ops/step_records.h"

namespace lathe::dev {

struct AttendNumbers {
  int heads, kv_heads, head_dim, rotary;
  int halves;  // 1: rotary/2 apart, 0: neighbours rotate together
  int window, splits;
  f32 epsilon, scale;
  // 0, a constant: queries and keys are not normed. 1: where the operands have weights for it.
  int normed = 1;
};
LATHE_DEVICE const f32* query_norm(const AttendNumbers& n, const AttendOperands& o) {
  return n.normed ? o.q_norm : nullptr;
}
LATHE_DEVICE const f32* key_norm(const AttendNumbers& n, const AttendOperands& o) {
  return n.normed ? o.k_norm : nullptr;
}

enum : int { kAttendPairs = 4 };  // pairs of a head's values per lane: head_dim up to 256

// The pairs of elements that a lane works on: where the first and the second of pair t are.
LATHE_DEVICE bool pair_turns(const AttendNumbers& n, int t) {
  return t * kWarp < n.rotary / 2 && lane_index() + t * kWarp < n.rotary / 2;
}
LATHE_DEVICE int pair_first(const AttendNumbers& n, int t) {
  const int i = lane_index() + t * kWarp;
  return n.halves && pair_turns(n, t) ? i : 2 * i;
}
LATHE_DEVICE int pair_second(const AttendNumbers& n, int t) {
  return pair_first(n, t) + (n.halves && pair_turns(n, t) ? n.rotary / 2 : 1);
}

// How they turn at this position.
struct LanePairs {
  f32 sine[kAttendPairs], cosine[kAttendPairs];
};

// How fast one of these turns, as in ops/rope.h.
struct Frequency {
  f32 high, low;
};
LATHE_DEVICE Frequency pair_frequency(const f32* frequencies, int t) {
  const int i = 2 * (lane_index() + t * kWarp);
  return {frequencies[i], frequencies[i + 1]};
}

// `frequency` gives that of pair t, if it turns.
template <class FrequencyOf>
LATHE_DEVICE LanePairs lane_pairs(const AttendNumbers& n, int position, FrequencyOf frequency) {
  LanePairs pairs;
  LATHE_UNROLL(4)
  for (int t = 0; t < kAttendPairs; ++t) {
    pairs.sine[t] = 0;
    pairs.cosine[t] = 1;
    if (pair_turns(n, t)) {
      const Frequency f = frequency(t);
      sine_cosine(turns_at(position, f.high, f.low), pairs.sine[t], pairs.cosine[t]);
    }
  }
  return pairs;
}
LATHE_DEVICE LanePairs lane_pairs(const AttendNumbers& n, const f32* frequencies, int position) {
  return lane_pairs(n, position, [&](int t) { return pair_frequency(frequencies, t); });
}

// The norm weights of the lane's pairs; 1 without a norm.
LATHE_DEVICE void lane_weights(const f32* norm, const AttendNumbers& n,
                               f32 (&weights)[2 * kAttendPairs]) {
  LATHE_UNROLL(4)
  for (int t = 0; t < kAttendPairs; ++t) {
    const int half = n.head_dim / 2;
    const bool used = norm && t * kWarp < half && lane_index() + t * kWarp < half;
    weights[2 * t] = used ? norm[pair_first(n, t)] : 1.0f;
    weights[2 * t + 1] = used ? norm[pair_second(n, t)] : 1.0f;
  }
}

// One head's values on their way: a lane's fours of them, 128 apart.
struct HeadLook {
  u32x4 seen[2];
};
template <class Each>
LATHE_DEVICE void each_four(int head_dim, Each each) {
  LATHE_UNROLL(2)
  for (int t = 0; t < 2; ++t) {
    const int i = 4 * (lane_index() + t * kWarp);
    if (4 * t * kWarp < head_dim && i < head_dim) each(t, i);
  }
}
LATHE_DEVICE HeadLook look_at_head(const Exchange& e, const f32* from, int head_dim) {
  HeadLook head;
  each_four(head_dim, [&](int t, int i) { head.seen[t] = look(e, from + i); });
  return head;
}
// Looks until they are there.
LATHE_DEVICE void await_head(const Exchange& e, const f32* from, int head_dim, HeadLook& head) {
  if (!e.polled) return;
  each_four(head_dim, [&](int t, int i) { await(e, from + i, head.seen[t]); });
}
// Brings them to shared memory and returns the sum of the lane's squares; a warp calls.
LATHE_DEVICE f32 put_head(const HeadLook& head, f32* to, int head_dim) {
  f32 squares = 0;
  each_four(head_dim, [&](int t, int i) {
    const f32x4 v = without_tags(head.seen[t]);
    squares = fma(v.x, v.x, squares);
    squares = fma(v.y, v.y, squares);
    squares = fma(v.z, v.z, squares);
    squares = fma(v.w, v.w, squares);
    *reinterpret_cast<f32x4*>(to + i) = v;
  });
  warp_barrier();
  return squares;
}
LATHE_DEVICE f32 receive_head(const Exchange& e, const f32* from, f32* to, int head_dim) {
  HeadLook head = look_at_head(e, from, head_dim);
  await_head(e, from, head_dim, head);
  return put_head(head, to, head_dim);
}

// Norm (with weights), rotation and a factor, in place; a warp calls.
LATHE_DEVICE void turn_head(f32* x, const LanePairs& pairs, const f32 (&weights)[2 * kAttendPairs],
                            bool norm, f32 squares, f32 factor, const AttendNumbers& n) {
  f32 normal = 1.0f;
  if (norm) {
    const f32 mean = divide(warp_sum(squares), static_cast<f32>(n.head_dim));
    normal = reciprocal_root(mean + n.epsilon);
  }
  LATHE_UNROLL(4)
  for (int t = 0; t < kAttendPairs; ++t) {
    if (t * kWarp >= n.head_dim / 2 || lane_index() + t * kWarp >= n.head_dim / 2) break;
    f32* first = x + pair_first(n, t);
    f32* second = x + pair_second(n, t);
    f32 a = *first, b = *second;
    if (norm) {
      a = a * normal * weights[2 * t];
      b = b * normal * weights[2 * t + 1];
    }
    if (lane_index() + t * kWarp < n.rotary / 2) {
      const f32 turned = fma(a, pairs.cosine[t], -(b * pairs.sine[t]));
      b = fma(a, pairs.sine[t], b * pairs.cosine[t]);
      a = turned;
    }
    *first = a * factor;
    *second = b * factor;
  }
  warp_barrier();
}

// What a block needs of the new token.
struct AttendPart {
  int kv_head;
  int first, queries;  // heads
  bool has_new;        // the new position is one of the block's
};

// Queries to shared memory, `stride` floats each with zeros at the end; when the new position is
// the block's, its key and value to shared memory and to the cache.
template <class Kv>
LATHE_DEVICE void attend_vectors(const Exchange& e, const AttendOperands& o, const AttendNumbers& n,
                                 int position, const AttendPart& part, int warps, int stride,
                                 f32* queries, f32* fresh, u8* packed) {
  const int d = n.head_dim, own = warp_index();
  const LanePairs pairs = lane_pairs(n, o.frequencies, position);
  f32 weights[2 * kAttendPairs];
  lane_weights(own < part.queries ? query_norm(n, o) : key_norm(n, o), n, weights);
  LATHE_UNROLL(1)
  for (int step = 0; step < ceil_div(part.queries + 2, warps); ++step) {
    const int i = step * warps + own;
    if (i >= (part.has_new ? part.queries + 2 : part.queries)) break;
    if (i < part.queries) {
      f32* query = queries + i * stride;
      if (step > 0) lane_weights(query_norm(n, o), n, weights);
      const f32 squares = receive_head(e, o.qkv + (part.first + i) * d, query, d);
      turn_head(query, pairs, weights, query_norm(n, o) != nullptr, squares, n.scale, n);
      LATHE_UNROLL(4)
      for (int j = d + lane_index(); j < stride; j += kWarp) query[j] = 0;
      continue;
    }
    const bool is_key = i == part.queries;
    const int packed_bytes = kv_row_bytes(Kv::bytes, d);
    f32* row = fresh + (is_key ? 0 : round_up(d, 4));
    u8* rounded = packed + (is_key ? 0 : packed_bytes);
    const f32* from = o.qkv + (n.heads + (is_key ? 0 : n.kv_heads) + part.kv_head) * d;
    const f32 squares = receive_head(e, from, row, d);
    if (is_key) {
      if (step > 0) lane_weights(key_norm(n, o), n, weights);
      turn_head(row, pairs, weights, key_norm(n, o) != nullptr, squares, 1.0f, n);
    }
    Kv::pack(row, rounded, d);
    warp_barrier();
    u8* cache = is_key ? o.k_cache : o.v_cache;
    store_row<Kv>(rounded,
                  cache + static_cast<i64>(position) * kv_position_bytes(Kv::bytes, n.kv_heads * d),
                  part.kv_head, n.kv_heads, d);
  }
}

}  // namespace lathe::dev
