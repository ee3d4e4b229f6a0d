// Owns the products of two neighbouring tiles of a row tile at once. The steps of the two
// alternate: one's matrix instructions are under way while the other's codes are made, which no
// assembler does for products that are written one after the other.
#pragma once

#include "ops/tile_dot.h"

namespace lathe::dev {

template <class Tile>
LATHE_DEVICE void pair_codes(const u8* a, const u8* b, int subs, const Activation& x,
                             const Activation& y, i32 (&c)[2][4], i32 (&d)[2][4]) {
  LATHE_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    if (2 * i >= subs) break;
    multiply_codes<Tile>(a, subs, i, x, c);
    multiply_codes<Tile>(b, subs, i, y, d);
  }
}
LATHE_DEVICE void pair_q6_k(const u8* a, const u8* b, const Activation& x, const Activation& y,
                            i32 (&c)[2][2][4], i32 (&d)[2][2][4]) {
  LATHE_UNROLL(2)
  for (int half = 0; half < 2; ++half) {
    u32 first[12], second[12];
    load_q6_k(a, half, first);
    load_q6_k(b, half, second);
    LATHE_UNROLL(4)
    for (int s = 0; s < 4; ++s) {
      multiply_q6_k(first, half, s, x, c);
      multiply_q6_k(second, half, s, y, d);
    }
  }
}

// Adds the products of tile `a`, and of `b` if there are two, to the lane's shares of rows g and
// g + 8. Without a second tile `b` is any tile and `y` anything.
template <class Tile>
LATHE_DEVICE void pair_dot(const u8* a, const u8* b, int subs, const Activation& x,
                           const Activation& y, bool two, f32& row0, f32& row1) {
  f32 both0, both1;
  if constexpr (Tile::own_dot == 0) {
    i32 c[2][4] = {}, d[2][4] = {};
    pair_codes<Tile>(a, b, subs, x, y, c, d);
    add_sums<Tile>(a, subs, c, x, row0, row1);
    both0 = row0;
    both1 = row1;
    add_sums<Tile>(b, subs, d, y, both0, both1);
  } else if constexpr (Tile::own_dot == 2) {
    i32 c[2][2][4] = {}, d[2][2][4] = {};
    pair_q6_k(a, b, x, y, c, d);
    add_q6_k(a, c, x, row0, row1);
    both0 = row0;
    both1 = row1;
    add_q6_k(b, d, y, both0, both1);
  } else {
    Tile::dot(a, subs, x, row0, row1);
    both0 = row0;
    both1 = row1;
    Tile::dot(b, subs, y, both0, both1);
  }
  row0 = two ? both0 : row0;
  row1 = two ? both1 : row1;
}

}  // namespace lathe::dev
