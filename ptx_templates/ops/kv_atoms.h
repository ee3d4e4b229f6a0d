// Owns keys and values as sums of atoms: the choice of a vector's atoms, and the vector again.
//
// A table has `atoms` rows of head_dim floats. A vector of head_dim is `terms` words, each the
// number of an atom << 16 | a coefficient in f16. Layout of K and of V:
// [position][kv_heads][terms] words.
#pragma once

#include "ops/argmax.h"
#include "ops/attention.h"

namespace lathe::dev {

// The dot product of `x` in shared memory with an atom, of which each of kAtomLanes lanes takes a
// part; they all have it. All lanes of the warp call.
LATHE_DEVICE f32 atom_dot(const f32* x, const f32* atom, int head_dim) {
  const int lane = lane_index() % kAtomLanes;
  f32 sum = 0;
  if (head_dim % 4 == 0) {
    LATHE_UNROLL(8)
    for (int step = 0; step < ceil_div(head_dim, 4 * kAtomLanes); ++step) {
      const int e = 4 * (step * kAtomLanes + lane);
      if (e >= head_dim) break;
      const f32x4 a = *reinterpret_cast<const f32x4*>(atom + e);
      const f32x4 b = *reinterpret_cast<const f32x4*>(x + e);
      sum = fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
    }
  } else {
    LATHE_UNROLL(8)
    for (int step = 0; step < ceil_div(head_dim, 2 * kAtomLanes); ++step) {
      const int e = 2 * (step * kAtomLanes + lane);
      if (e >= head_dim) break;
      const f32x2 a = *reinterpret_cast<const f32x2*>(atom + e);
      sum = fma(a.y, x[e + 1], fma(a.x, x[e], sum));
    }
  }
  LATHE_UNROLL(3)
  for (int mask = kAtomLanes / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  return sum;
}

// The atom with the greatest product, whatever its sign; ties go to the lower number, NaN never
// wins. `bests`: shared memory for a pair per warp.
LATHE_DEVICE Best best_atom(const f32* residual, const f32* table, int head_dim, int atoms,
                            u8* bests, int warps) {
  const int together = warps * kWarp / kAtomLanes;
  Best best = no_best();
  LATHE_UNROLL(4)
  for (int step = 0; step < ceil_div(atoms, together); ++step) {
    const int id = step * together + thread_index() / kAtomLanes;
    const i64 at = static_cast<i64>(min_int(id, atoms - 1)) * head_dim;
    const f32 dot = atom_dot(residual, table + at, head_dim);
    const Best other = {dot < 0 ? -dot : dot, id};
    if (id < atoms) best = better(best, other);
  }
  return block_best(best, bests, warps);
}

// A product as a coefficient in f16. What is too great for one is its greatest: the next terms take
// the rest. Infinity and NaN stay.
LATHE_DEVICE u32 atom_coefficient(f32 product) {
  const f32 most = 65504.0f, finite = 3.40282347e38f;
  const f32 size = product < 0 ? -product : product;
  if (size > most && size <= finite) product = product < 0 ? -most : most;
  return f32_to_f16(product);
}

// A block for each vector: keys in row 0 of the grid, values in row 1. What no atom can be chosen
// for has a NaN in it: its coefficients are NaN, and so is what is read again.
LATHE_OP kv_append_atoms(const f32* k, const f32* v, const i32* position, const f32* k_atoms,
                         const f32* v_atoms, u8* k_cache, u8* v_cache, int kv_heads, int head_dim,
                         int atoms, int terms, int warps) {
  const bool is_key = block_y() == 0;
  const f32* x = (is_key ? k : v) + block_x() * head_dim;
  const f32* table = is_key ? k_atoms : v_atoms;
  u32* words = reinterpret_cast<u32*>(is_key ? k_cache : v_cache) +
               (static_cast<i64>(*position) * kv_heads + block_x()) * terms;
  const int threads = warps * kWarp;
  f32* residual = reinterpret_cast<f32*>(shared_memory());
  u8* bests = shared_memory() + round_up(head_dim, 4) * 4;
  LATHE_UNROLL(1)
  for (int step = 0; step < ceil_div(head_dim, threads); ++step) {
    const int e = step * threads + thread_index();
    if (e < head_dim) residual[e] = x[e];
  }
  block_barrier();
  LATHE_UNROLL(1)
  for (int term = 0; term < terms; ++term) {
    const Best best = best_atom(residual, table, head_dim, atoms, bests, warps);
    const int id = best.index == no_best().index ? 0 : best.index;
    const f32* atom = table + static_cast<i64>(id) * head_dim;
    const u32 coefficient = atom_coefficient(atom_dot(residual, atom, head_dim));
    block_barrier();
    LATHE_UNROLL(1)
    for (int step = 0; step < ceil_div(head_dim, threads); ++step) {
      const int e = step * threads + thread_index();
      if (e < head_dim) residual[e] = fma(-f16_to_f32(coefficient), atom[e], residual[e]);
    }
    if (thread_index() == 0) words[term] = static_cast<u32>(id) << 16 | coefficient;
    block_barrier();
  }
}

// K and V as words, read by whole warps: their lanes have pairs of a vector's elements, so that an
// atom is read in a row.
struct KvAtoms {
  const u8 *k_cache, *v_cache;
  const f32 *k_atoms, *v_atoms;
  int terms;
};

// The lane's pairs of a vector, as value_pairs() has them.
LATHE_DEVICE void sum_atoms(const u8* cache, const f32* table, i64 vector, int terms, int head_dim,
                            f32* out) {
  const u32* words = reinterpret_cast<const u32*>(cache) + vector * terms;
  LATHE_UNROLL(8)
  for (int i = 0; i < kAttentionMaxPairs * 2; ++i) out[i] = 0;
  LATHE_UNROLL(8)
  for (int term = 0; term < terms; ++term) {
    const u32 word = words[term];
    const f32 coefficient = f16_to_f32(word);
    const f32* atom = table + static_cast<i64>(word >> 16) * head_dim;
    LATHE_UNROLL(4)
    for (int d = 0; d < kAttentionMaxPairs; ++d) {
      const int e = 2 * lane_index() + 64 * d;
      if (64 * d < head_dim && e < head_dim) {
        const f32x2 pair = *reinterpret_cast<const f32x2*>(atom + e);
        out[2 * d] = fma(coefficient, pair.x, out[2 * d]);
        out[2 * d + 1] = fma(coefficient, pair.y, out[2 * d + 1]);
      }
    }
  }
}

LATHE_DEVICE void tile_scores(const KvAtoms& kv, const f32* query, f32* score, int own_row,
                              int positions, int kv_heads, int kv_head, int head_dim, int heads) {
  LATHE_UNROLL(8)
  for (int h = 0; h < kAttentionMaxHeads; ++h) score[h] = 0;
  LATHE_UNROLL(1)
  for (int j = 0; j < min_int(kWarp, positions); ++j) {
    const int place = static_cast<int>(shuffle(static_cast<u32>(own_row), j));
    f32 key[kAttentionMaxPairs * 2];
    sum_atoms(kv.k_cache, kv.k_atoms, static_cast<i64>(place) * kv_heads + kv_head, kv.terms,
              head_dim, key);
    LATHE_UNROLL(8)
    for (int h = 0; h < kAttentionMaxHeads; ++h) {
      if (h >= heads) break;
      f32 sum = 0;
      LATHE_UNROLL(4)
      for (int d = 0; d < kAttentionMaxPairs; ++d) {
        const int e = 2 * lane_index() + 64 * d;
        if (64 * d < head_dim && e < head_dim) {
          sum = fma(query[h * head_dim + e], key[2 * d], sum);
          sum = fma(query[h * head_dim + e + 1], key[2 * d + 1], sum);
        }
      }
      sum = warp_sum(sum);
      if (lane_index() == j) score[h] = sum;
    }
  }
}

LATHE_DEVICE void value_pairs(const KvAtoms& kv, f32* value, int place, int kv_heads, int kv_head,
                              int head_dim) {
  sum_atoms(kv.v_cache, kv.v_atoms, static_cast<i64>(place) * kv_heads + kv_head, kv.terms,
            head_dim, value);
}

LATHE_OP attention_atoms(const f32* q, const u8* k_cache, const u8* v_cache, const i32* position,
                         const f32* k_atoms, const f32* v_atoms, f32* partial, int heads,
                         int kv_heads, int head_dim, int window, int terms, int splits, int warps,
                         f32 scale) {
  attention<false>(q, KvAtoms{k_cache, v_cache, k_atoms, v_atoms, terms}, position, nullptr,
                   partial, heads, kv_heads, head_dim, window, splits, warps, scale);
}

}  // namespace lathe::dev
