// Owns rotary position embedding, in place on heads x head_dim values: the first `rotary` values of
// each head rotate in pairs, by an angle that grows with the position.
#pragma once

#include "ops/math.h"

namespace lathe::dev {

// table: per pair the frequency in revolutions per position, high part then low part.
template <bool kHalves>
LATHE_DEVICE void rope(f32* x, const i32* position, const f32* table, int heads, int head_dim,
                       int rotary, int warps) {
  const int pairs = rotary / 2;
  const int i = block_x() * warps * kWarp + thread_index();
  if (i >= heads * pairs) return;
  const int head = i / pairs, pair = i % pairs;
  f32 sine, cosine;
  sine_cosine(turns_at(*position, table[2 * pair], table[2 * pair + 1]), sine, cosine);
  f32* a = x + head * head_dim + (kHalves ? pair : 2 * pair);
  f32* b = kHalves ? a + pairs : a + 1;
  const f32 va = *a, vb = *b;
  *a = fma(va, cosine, -(vb * sine));
  *b = fma(va, sine, vb * cosine);
}

LATHE_OP rope_adjacent(f32* x, const i32* position, const f32* table, int heads, int head_dim,
                       int rotary, int warps) {
  rope<false>(x, position, table, heads, head_dim, rotary, warps);
}
LATHE_OP rope_halves(f32* x, const i32* position, const f32* table, int heads, int head_dim,
                     int rotary, int warps) {
  rope<true>(x, position, table, heads, head_dim, rotary, warps);
}

}  // namespace lathe::dev
