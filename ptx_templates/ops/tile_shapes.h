// Owns the sizes of the tiled weight layout: where the tiles of a matrix lie and where the sections
// of a tile begin. Device code and the host (codegen/tile.cpp) read it; docs/weight-layout.md has
// the pictures.
#pragma once

#include "isa/shape_math.h"

namespace lathe::dev {

enum : int {
  kTileRows = 16,    // rows of a tile
  kTileSub = 32,     // values of a sub-block
  kTileChunk = 512,  // bytes that a warp reads at once: 16 per lane
};

// Per format: sub-blocks of a tile at most, bits per code, bytes of scales per 16 rows of a
// sub-block, the code that stands for 0. A format with 256-value blocks always has tiles of 8
// sub-blocks: k is a multiple.
struct Q4_0Tiles {
  enum : int { most_subs = 8, code_bits = 4, scale_bytes = 32, zero = 8 };
};
struct Q4_1Tiles {
  enum : int { most_subs = 8, code_bits = 4, scale_bytes = 64, zero = 0 };
};
struct Q5_0Tiles {
  enum : int { most_subs = 8, code_bits = 5, scale_bytes = 32, zero = 16 };
};
struct Q5_1Tiles {
  enum : int { most_subs = 8, code_bits = 5, scale_bytes = 64, zero = 0 };
};
struct Q8_0Tiles {
  enum : int { most_subs = 8, code_bits = 8, scale_bytes = 32, zero = 128 };
};
struct Q4_KTiles {
  enum : int { most_subs = 8, code_bits = 4, scale_bytes = 32, zero = 0 };
};
struct Q5_KTiles {
  enum : int { most_subs = 8, code_bits = 5, scale_bytes = 32, zero = 0 };
};
struct Q6_KTiles {
  enum : int { most_subs = 8, code_bits = 6, scale_bytes = 36, zero = 32 };
};
struct Q2_KTiles {
  enum : int { most_subs = 8, code_bits = 2, scale_bytes = 40, zero = 0 };
};
struct Q3_KTiles {
  enum : int { most_subs = 8, code_bits = 3, scale_bytes = 28, zero = 4 };
};
struct IQ4_NLTiles {
  enum : int { most_subs = 8, code_bits = 4, scale_bytes = 32 };
};
struct IQ4_XSTiles {
  enum : int { most_subs = 8, code_bits = 4, scale_bytes = 16 };
};
struct MXFP4Tiles {
  enum : int { most_subs = 8, code_bits = 4, scale_bytes = 16 };
};
struct HalfTiles {
  enum : int { most_subs = 8, code_bits = 16, scale_bytes = 0 };
};  // f16, bf16

// Sub-blocks of a row of k values, padded to an even number.
LATHE_SHAPE int tile_subs_total(int k) {
  return ceil_div(k, 2 * kTileSub) * 2;
}
// Sub-blocks of a tile: the largest even number, `most` at most, that divides those of a row.
LATHE_SHAPE int tile_subs(int k, int most) {
  const int total = tile_subs_total(k);
  for (int subs = most; subs > 2; subs -= 2)
    if (total % subs == 0) return subs;
  return 2;
}
LATHE_SHAPE int tiles_per_row(int k, int most) {
  return tile_subs_total(k) / tile_subs(k, most);
}
LATHE_SHAPE int tile_row_tiles(int n) {
  return ceil_div(n, kTileRows);
}

// Bytes of the low four bits of five-bit codes: where their fifth bits begin.
LATHE_SHAPE int tile_nibble_bytes(int subs) {
  return subs * (kTileChunk / 2);
}
// Bytes of all codes: where the scales begin.
LATHE_SHAPE int tile_code_bytes(int code_bits, int subs) {
  return subs * kTileRows * kTileSub / 8 * code_bits;
}
LATHE_SHAPE int tile_bytes(int code_bits, int scale_bytes, int subs) {
  return tile_code_bytes(code_bits, subs) + scale_bytes * subs;
}

// Within the scales of q4_k and q5_k: four-bit parts of the mins, then d and dmin.
enum : int { kTileMinsAt = 128, kTileHalvesAt = 192 };
// Within the scales of q6_k: d, after eight scales per lane. Of q2_k in the same place d and dmin.
enum : int { kTileDeltaAt = 256 };
// Within the scales of q3_k: two-bit parts of the scales, then d.
enum : int { kTileQ3HighAt = 128, kTileQ3DeltaAt = 192 };
// Within the scales of iq4_xs: the same.
enum : int { kTileXsHighAt = 64, kTileXsDeltaAt = 96 };

}  // namespace lathe::dev
