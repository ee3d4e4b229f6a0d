// Owns the sizes that a kernel's code and its launch must agree on: what a block stages, holds and
// covers. The ops include it, and so do the rows of the kernel table that compute the launch.
#pragma once

#include "isa/shape_math.h"

namespace lathe::dev {

enum : int {
  kGemvChunk = 8192,            // values of x staged at once; a multiple of 32 and of every block
  kGemvMaxRows = 8,             // rows per warp
  kAttentionMaxHeads = 8,       // query heads per block
  kAttentionMaxPairs = 4,       // pairs of head elements per lane: head_dim up to 256
  kAttentionAccumulators = 32,  // values of the result a lane keeps in registers
  kTopK = 64,                   // logits that sampling chooses from: two per lane of a warp
  kTopKFlags = 4096,            // logits of a share that have a flag of their own; a power of two
  kRecentTokens = 256,          // that the repeat penalty can look at; a power of two
};

LATHE_SHAPE int round_up(int n, int unit) {
  return ceil_div(n, unit) * unit;
}

// The shared memory of a matrix-vector phase beside its ring of weights: partial sums of row tiles,
// gate values, sums of squares; and the activations of its tile columns.
enum : int {
  kPhaseWarps = 16,
  kPartialFloats = 4096,  // 16 row tiles of 16 warps
  kGateFloats = 224,      // 14 row tiles
  kPhaseScratch = (kPartialFloats + kGateFloats + 3 * kPhaseWarps) * 4,
  kColumnBytes = 640,
  kStreamEntryBytes = 16,
  kStreamStepsBytes = 240,
  kCopyLine = 128,
};
// A warp that multiplies two tiles at once may have two columns that no other warp has.
LATHE_SHAPE int column_bytes(int columns, int warps, int together) {
  return max_int(columns, together * warps) * kColumnBytes;
}

// The formats of tiles by number.
enum : int {
  kTileQ4_0,
  kTileQ4_1,
  kTileQ5_0,
  kTileQ5_1,
  kTileQ8_0,
  kTileQ4_K,
  kTileQ5_K,
  kTileQ6_K,
  kTileQ2_K,
  kTileQ3_K,
  kTileIQ4_NL,
  kTileIQ4_XS,
  kTileMXFP4,
  kTileF16,
  kTileBF16,
  kTileFormats,  // how many
};

// Bytes of a slot for tiles of so many bytes, a multiple of 16, which lie one after the other from
// a line's beginning on: room for the tile wherever in a line it begins.
LATHE_SHAPE int slot_bytes(int tile_bytes) {
  return round_up(tile_bytes + kCopyLine - min_int(kCopyLine, tile_bytes & -tile_bytes), kCopyLine);
}

// Shared memory of the rings of weights: their slots, each warp's steps, and a barrier and
// an offset for each slot.
LATHE_SHAPE int stream_bytes(int warps, int slots, int slot_bytes) {
  return round_up(warps * (slots * (slot_bytes + 12) + kStreamStepsBytes), 16);
}

// Bytes of shared memory a gemv block needs for k values: each run of 16 padded to 20.
LATHE_SHAPE int gemv_shared_bytes(int k) {
  return ceil_div(min_int(k, kGemvChunk), 16) * 80;
}

// Query heads per attention block for this group size and head_dim.
LATHE_SHAPE int attention_heads(int group, int head_dim) {
  return min_int(min_int(group, kAttentionMaxHeads),
                 max_int(1, kAttentionAccumulators / (2 * ceil_div(head_dim, 64))));
}

// Floats of shared memory of an attention block: the scaled queries, then per warp each head's
// values, maximum and sum.
LATHE_SHAPE int attention_shared_floats(int group, int head_dim, int warps) {
  return attention_heads(group, head_dim) * (head_dim + warps * (head_dim + 2));
}

// Lanes that share an atom while one is looked for (ops/kv_atoms.h).
enum : int { kAtomLanes = 8 };

// Bytes of shared memory of a block that chooses a vector's atoms: what is left of the vector, then
// a pair for each of several warps.
LATHE_SHAPE int atoms_shared_bytes(int head_dim, int warps) {
  return round_up(head_dim, 4) * 4 + (warps > 1 ? warps * 8 : 0);
}

// Least power of two that is at least n.
LATHE_SHAPE int power_of_two(int n) {
  int p = 1;
  while (p < n) p *= 2;
  return p;
}

// Bytes of one position in the KV cache of fused attention: kv_heads x head_dim values, then, for
// one-byte values, an f16 scale per 32 of them, then nothing up to a multiple of 16.
LATHE_SHAPE int kv_position_bytes(int value_bytes, int values) {
  return value_bytes == 1 ? round_up(values + values / 16, 16) : values * value_bytes;
}
// Of one head's row with its scales, where a block has it for itself.
LATHE_SHAPE int kv_row_bytes(int value_bytes, int head_dim) {
  return kv_position_bytes(value_bytes, head_dim);
}

// Positions of a page of a KV cache that lies in pages (ops/kv_pages.h).
enum : int { kPagePositions = 16 };

enum : int {
  kAttendShared = 16384,      // bytes of shared memory a block of fused attention makes do with
  kAttendAlone = 128 * 1024,  // bytes of K and V that one block takes alone sooner than with others
  kAttendPart = 32 * 1024,    // least that is worth a block of its own beyond that
  kAttendMaxSplits = 128,
};

// Blocks that meet count one arrival each, the first of them what is missing to this; where two
// warps of each arrive, each of the two what is missing to half of it.
enum : int { kArrivals = 1 << 16 };

// How a block of fused attention divides the query heads of one KV head and the rows of K and V.
struct AttendShape {
  int group;   // query heads of the KV head
  int teams;   // warps by turns belong to a team, which has its own heads of the group
  int heads;   // of a team
  int padded;  // the power of two that holds them
  int vec;     // values of a row that a lane has
  int lanes;   // of a row, a power of two; those past the row's end compute nothing
  int rows;    // of a warp at a time
  int passes;  // of a warp's tile of passes * rows rows
  int tile;
  // A tile's scores end in lanes: `span` lanes have those of one pass, each `kept` heads, and
  // `copies` lanes the same.
  int span, kept, copies;
};

// Rows of a lane per tile: what the registers of 16 warps hold beside the result.
LATHE_SHAPE int attend_passes(int vec, int value_bytes) {
  return vec == 8 && value_bytes == 4 ? 2 : 4;
}

LATHE_SHAPE AttendShape attend_shape(int heads, int kv_heads, int head_dim, int value_bytes) {
  AttendShape s{};
  s.group = heads / kv_heads;
  // Eight heads need lanes with few values each; then rows must be long enough for the lanes.
  s.teams = power_of_two(ceil_div(s.group, head_dim >= 64 && head_dim <= 128 ? 8 : 4));
  s.heads = ceil_div(s.group, s.teams);
  s.padded = power_of_two(s.heads);
  s.vec = s.heads > 4 ? 4 : 8;
  s.lanes = power_of_two(ceil_div(head_dim, s.vec));
  s.rows = 32 / s.lanes;
  s.passes = attend_passes(s.vec, value_bytes);
  s.tile = s.passes * s.rows;
  s.span = s.lanes / s.passes;
  s.kept = max_int(1, s.padded / s.span);
  s.copies = max_int(1, s.span / s.padded);
  return s;
}

// Splits in use for `visible` positions: `most` at most.
LATHE_SHAPE int attend_splits(int visible, int head_dim, int value_bytes, int most) {
  const int bytes = 2 * head_dim * value_bytes;
  if (visible <= kAttendAlone / bytes) return 1;
  return min_int(most, ceil_div(visible, kAttendPart / bytes));
}

// The same for a token of a batch, whose other tokens keep the blocks busy too.
LATHE_SHAPE int attend_row_splits(int visible, int head_dim, int value_bytes, int most) {
  return min_int(most, ceil_div(visible, kAttendAlone / (2 * head_dim * value_bytes)));
}

// Where things lie in the shared memory of a block of fused attention, in bytes. While it reads K
// and V: the queries, the new key and value as numbers and as in the cache, each warp's weights.
// Then the results of `slots` warps in the same place.
struct AttendShared {
  int fresh;    // after the queries: the new key, then the new value, in f32
  int packed;   // the same as the cache has them
  int weights;  // per warp: tile x padded weights, padded factors
  int weights_bytes;
  int slots;
  int slot_floats;  // values of every head of the group, then their sums of weights
  int maxima;       // per warp and head, then of the block per head, then a word
  int bytes;
};

LATHE_SHAPE AttendShared attend_shared(const AttendShape& s, int head_dim, int value_bytes,
                                       int splits, int warps) {
  AttendShared m{};
  m.fresh = s.group * s.lanes * s.vec * 4;
  m.packed = m.fresh + 2 * round_up(head_dim * 4, 16);
  m.weights = m.packed + 2 * kv_row_bytes(value_bytes, head_dim);
  m.weights_bytes = round_up((s.tile + 1) * s.padded * 4, 16);
  const int maxima_bytes = round_up((warps * s.padded + s.group + 1) * 4, 16);
  m.slot_floats = round_up(s.group * (head_dim + 1), 4);
  m.slots =
      max_int(1, min_int(warps / s.teams, (kAttendShared - maxima_bytes) / (m.slot_floats * 4)));
  m.maxima = max_int(m.weights + warps * m.weights_bytes, m.slots * m.slot_floats * 4);
  m.maxima = max_int(m.maxima, round_up(3 * splits * s.group * 4, 16));  // the merge of the splits
  m.bytes = m.maxima + maxima_bytes;
  return m;
}

// The same for a short context, where a block has one query head (ops/attend_short.h): the query
// with zeros at the end, the new key and value, scores, each warp's greatest score, then its part
// of the result and its sum of weights.
enum : int { kAttendShortPositions = 256 };
struct AttendShort {
  int stride, fresh, packed, scores, maxima, sums, partial, bytes;
};
LATHE_SHAPE AttendShort attend_short_shared(int head_dim, int value_bytes, int warps) {
  AttendShort m{};
  m.stride = round_up(head_dim, 32);
  m.fresh = m.stride * 4;
  m.packed = m.fresh + 2 * round_up(head_dim * 4, 16);
  m.scores = m.packed + 2 * kv_row_bytes(value_bytes, head_dim);
  m.maxima = m.scores + kAttendShortPositions * 4;
  m.sums = m.maxima + round_up(warps * 4, 16);
  m.partial = m.sums + round_up(warps * 4, 16);
  m.bytes = m.partial + warps * head_dim * 4;
  return m;
}

// What a block of fused attention needs in all.
LATHE_SHAPE int attend_bytes(int heads, int kv_heads, int head_dim, int value_bytes, int splits,
                             int warps) {
  const AttendShape s = attend_shape(heads, kv_heads, head_dim, value_bytes);
  return max_int(attend_shared(s, head_dim, value_bytes, splits, warps).bytes,
                 attend_short_shared(head_dim, value_bytes, warps).bytes);
}

// Floats that a split leaves for the merge: values, then maximum and sum of weights per head.
LATHE_SHAPE int attend_partial_floats(int group, int head_dim) {
  return round_up(group * (head_dim + 2), 4);
}

// Attention of the tokens of a chunk: a block takes 128 of them and one head, 64 positions at a
// time, the next ones on their way. Rows of queries, keys and values in shared memory are as long
// as keeps banks apart.
enum : int { kAttendTokens = 128, kAttendPositions = 64 };
LATHE_SHAPE int attend_query_bytes(int head_dim) {
  return 2 * head_dim + 32;
}
LATHE_SHAPE int attend_value_bytes(int head_dim) {
  return 2 * head_dim + 16;
}
// Of 64 positions: keys, then values.
LATHE_SHAPE int attend_positions_bytes(int head_dim) {
  return kAttendPositions * (attend_query_bytes(head_dim) + attend_value_bytes(head_dim));
}
LATHE_SHAPE int attend_tokens_bytes(int head_dim) {
  return kAttendTokens * attend_query_bytes(head_dim) + 2 * attend_positions_bytes(head_dim);
}
// A warp's staging of one head in f32, and as the cache has it.
LATHE_SHAPE int append_warp_bytes(int value_bytes, int head_dim) {
  return round_up(head_dim * 4, 16) + kv_row_bytes(value_bytes, head_dim);
}

// Bytes of flags a top_k block keeps of the recent tokens in its share of n logits.
LATHE_SHAPE int top_k_flag_bytes(int n, int blocks) {
  return ceil_div(min_int(ceil_div(n, blocks), kTopKFlags), 16) * 16;
}

// Bytes of shared memory of a top_k and of a sample block: a list of 64 candidates for every warp
// but the first; before them, top_k's flags.
LATHE_SHAPE int sample_shared_bytes(int threads) {
  return (threads / 32 - 1) * kTopK * 8;
}
LATHE_SHAPE int top_k_shared_bytes(int n, int blocks, int threads) {
  return top_k_flag_bytes(n, blocks) + sample_shared_bytes(threads);
}

// The shared memory of a block of a persistent kernel, in bytes from its beginning; first come the
// rings of weights. Attention has the scratch and the activations of the matrix-vector phases.
enum : int { kRecordWords = 24, kRecordSlots = 8, kTokenStateBytes = 144 };
struct PersistentLayout {
  int scratch, columns, records, record_barriers, token, entries, bytes;
};
LATHE_SHAPE PersistentLayout persistent_layout(int warps, int slots, int slot_bytes, int columns,
                                               int entries, int attend_bytes, int together) {
  PersistentLayout m{};
  m.scratch = stream_bytes(warps, slots, slot_bytes);
  m.columns = m.scratch + kPhaseScratch;
  m.records = m.columns + max_int(column_bytes(columns, warps, together),
                                  round_up(attend_bytes, 16) - int{kPhaseScratch});
  m.record_barriers = m.records + kRecordSlots * kRecordWords * 8;
  m.token = m.record_barriers + kRecordSlots * 8;
  m.entries = m.token + kTokenStateBytes;
  m.bytes = m.entries + entries * kStreamEntryBytes;
  return m;
}

}  // namespace lathe::dev
