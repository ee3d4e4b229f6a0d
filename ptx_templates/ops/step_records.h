// Owns what the host writes for a persistent kernel, and some of it for kernels of their own: the
// operands and shapes of a step, a block's list of weights, the state between launches. The
// runtime includes it: pointers are addresses in device memory.
#pragma once

#include "isa/types.h"
#include "ops/launch_shapes.h"

namespace lathe::dev {

// A block's share of one matrix, in the order of use. The list for a token repeats from token to
// token.
struct alignas(16) StreamEntry {
  const u8* tiles;
  u16 rows, columns;  // row tiles, and tiles of each
  u16 tile_units;     // of 16 bytes
  u16 inverse;        // column_inverse()
};

// For own_tiles(): warp / parts without a division, exact for up to 16 warps, where the columns are
// that many times what a warp multiplies at once.
LATHE_SHAPE int column_inverse(int columns, int together) {
  return ceil_div(4096, ceil_div(columns, together));
}

LATHE_SHAPE StreamEntry stream_entry(const u8* tiles, int rows, int columns, int tile_bytes,
                                     int together) {
  return {tiles, static_cast<u16>(rows), static_cast<u16>(columns),
          static_cast<u16>(tile_bytes / 16), static_cast<u16>(column_inverse(columns, together))};
}

enum : int { kPlainRows = 0, kGatedRows = 1, kLogitRows = 2 };  // what becomes of the sums

struct MatvecShape {
  i32 k, subs, columns;    // values of the vector; sub-blocks per tile; tiles per row
  i32 inverse;             // column_inverse()
  i32 rows[3], format[3];  // of the matrices; formats by number, kTile...
  i32 kind, activation;
  f32 inverse_k, epsilon;
  // The block's share: row tiles of each matrix, the first of them; and of the block with the most,
  // in all.
  i32 count[3], first[3], most;
  // Row tiles whose sums are there at a time, and the floats these take.
  i32 batch, sums;
};

// Which tiles are a warp's own, of a block's row tiles of `columns` tiles each. With at least as
// many columns as warps: columns `column`, column + warps ... of every row tile. With fewer, groups
// of as many warps as there are columns take row tiles by turns; warps that make no group have
// nothing. The same of pairs of columns where a warp multiplies two tiles at once, but its columns
// are neighbours: `column`, column + 1 ...
struct OwnTiles {
  int column, count;  // the first column, and how many
  int group, groups;
  // With two tiles at once: which of the warps that share a row tile this is, and where its
  // columns' activations begin, counted in columns.
  int part, place;
};
template <int kTogether>
LATHE_SHAPE OwnTiles own_tiles(int warp, int warps, int columns, int inverse) {
  OwnTiles own{};
  if constexpr (kTogether > 1) {
    const int parts = ceil_div(columns, kTogether);
    if (parts >= warps) {
      own.part = warp;
      own.column = warp * columns / warps;
      own.count = (warp + 1) * columns / warps - own.column;
      own.groups = 1;
      own.place = own.column;
    } else {
      own.group = warp * inverse >> 12;
      own.groups = warps * inverse >> 12;
      own.part = warp - own.group * parts;
      own.column = own.part * kTogether;
      own.count = own.group < own.groups ? min_int(kTogether, columns - own.column) : 0;
      own.place = warp * kTogether;
    }
  } else if (columns >= warps) {
    own.column = warp;
    own.count = ceil_div(columns - warp, warps);
    own.groups = 1;
  } else {
    own.group = warp * inverse >> 12;
    own.groups = warps * inverse >> 12;
    own.column = warp - own.group * columns;
    own.count = own.group < own.groups ? 1 : 0;
  }
  return own;
}

// The block's share of a phase.
LATHE_SHAPE void share_phase(MatvecShape& s, int block, int blocks) {
  const bool gated = s.kind == kGatedRows;
  int tiles[3] = {}, units = 0, begin = 0;
  for (int m = 0; m < 3; ++m) {
    tiles[m] = ceil_div(s.rows[m], 16);
    units += tiles[m];
  }
  if (gated) units = tiles[0];
  for (int m = 0; m < 3; ++m) {
    const int low = block * units / blocks - begin, high = (block + 1) * units / blocks - begin;
    s.first[m] = min_int(max_int(low, 0), tiles[m]);
    s.count[m] = min_int(max_int(high, 0), tiles[m]) - s.first[m];
    if (!gated) begin += tiles[m];
  }
  s.most = ceil_div(units, blocks);
}

// How many warps have sums of the same row tile.
LATHE_SHAPE int sum_places(int columns, int warps, int together) {
  return min_int(ceil_div(columns, together), warps);
}

// Floats of partial sums when all row tiles of the block with the most have theirs at once.
LATHE_SHAPE int all_sums(const MatvecShape& s, int warps, int together) {
  return s.most * (s.kind == kGatedRows ? 2 : 1) * 16 * sum_places(s.columns, warps, together);
}

// How much of a phase is done at a time: all of it where its sums fit beside those of the phases
// before and after, of which the larger takes `beside` at once. Else as much as half the place
// holds: two such halves fit, and a phase that takes more than half at once has no neighbour
// that does (place_sums() of that one refused).
LATHE_SHAPE void place_sums(MatvecShape& s, int warps, int together, int beside) {
  const int row = 16 * sum_places(s.columns, warps, together), half = kPartialFloats / 2;
  const int all = all_sums(s, warps, together);
  const bool at_once = all <= half || all + beside <= kPartialFloats;
  s.batch = at_once ? all / row : half / row;
  s.sums = s.batch * row;
}

struct MatvecOperands {
  const f32 *from, *norm, *post, *stream_in, *bias[3], *residual;
  f32 *stream_out, *y;
};

struct AttendOperands {
  // The token's key and value are not in the cache yet, whose positions are one after the other.
  enum : int { appends = 1, paged = 0 };
  const f32* qkv;     // heads queries, kv_heads keys, kv_heads values, each head_dim long
  const f32* q_norm;  // weights of head_dim values, or null for no norm; k_norm likewise
  const f32* k_norm;
  const f32* frequencies;  // as in ops/rope.h
  u8* k_cache;             // as in ops/kv_rows.h, at multiples of 16
  u8* v_cache;
  f32* partial;   // kv_heads x splits x attend_partial_floats: scratch
  u32* counters;  // per KV head, multiples of kArrivals between uses
  f32* y;         // heads x head_dim
};

enum : int { kEmbedStep, kMatvecStep, kAttendStep };

struct StepRecord {
  i32 step;
  i32 variant;  // of attention: which of the program's
  union {
    struct {
      MatvecOperands operands;
      MatvecShape shape;
    } matvec;
    AttendOperands attend;
    struct {
      const u8* table;
      f32* y;
    } embed;
    u64 words[kRecordWords - 1];
  };
};
static_assert(sizeof(StepRecord) == kRecordWords * 8, "the words of a record");

// What outlives a launch, in device memory.
struct PersistentState {
  u32 fault;  // a wait was given up: nothing after that is a result
  u32 epoch;  // tokens decoded so far: its parity is the exchange's tag
};

// Token, position and what was sampled, as the host knows them.
struct TokenControl {
  i32 token, position, sampled;
};

// Ids that end a launch, as the host knows them.
enum : int { kMaxStops = 8 };
struct StopTokens {
  i32 count, ids[kMaxStops];
};

}  // namespace lathe::dev
