// Owns the shapes of fused attention by the matrix units (ops/attend_matrix.h): which there are,
// and where things lie in a block's shared memory.
#pragma once

#include "ops/launch_shapes.h"

namespace lathe::dev {

enum : int {
  kMatrixHeads = 8,       // query heads of a KV head, at most
  kMatrixHeadDim = 128,   // at most
  kMatrixWarps = 8,       // at most: more have too few registers
  kMatrixShared = 17408,  // bytes that a block makes do with: slots for 8 warps of 4 x 128 values
};

// No teams: all warps have all heads of the group, and 16 positions at a time.
LATHE_SHAPE AttendShape attend_matrix_shape(int heads, int kv_heads, int head_dim) {
  AttendShape s{};
  s.group = s.heads = heads / kv_heads;
  s.teams = 1;
  s.padded = s.group > 4 ? 8 : 4;
  s.vec = 4;
  s.lanes = ceil_div(head_dim, 32) * 8 + 1;  // a query with room for its factor
  s.tile = 16;
  return s;
}

// As attend_shared(), without weights: those stay in registers.
LATHE_SHAPE AttendShared attend_matrix_shared(const AttendShape& s, int head_dim, int splits,
                                              int warps) {
  AttendShared m{};
  m.fresh = s.group * s.lanes * s.vec * 4;
  m.packed = m.fresh + 2 * round_up(head_dim * 4, 16);
  m.weights = m.packed + 2 * kv_row_bytes(2, head_dim);
  const int maxima_bytes = round_up((warps * s.padded + s.group + 1) * 4, 16);
  m.slot_floats = round_up(s.group * (head_dim + 1), 4);
  m.slots = max_int(1, min_int(warps, (kMatrixShared - maxima_bytes) / (m.slot_floats * 4)));
  m.maxima = max_int(m.weights, m.slots * m.slot_floats * 4);
  m.maxima = max_int(m.maxima, round_up(3 * splits * s.group * 4, 16));  // the merge of the splits
  m.bytes = m.maxima + maxima_bytes;
  return m;
}

// Whether a window is so short that no context comes to the matrix units.
LATHE_SHAPE bool attend_without_matrix(int window, int group, int head_dim, int splits) {
  return window > 0 && window <= kAttendShortPositions && group <= splits &&
         attend_splits(window, head_dim, 2, splits) == 1;
}

// What a block needs in all.
LATHE_SHAPE int attend_matrix_bytes(int heads, int kv_heads, int head_dim, int splits, int warps) {
  const AttendShape s = attend_matrix_shape(heads, kv_heads, head_dim);
  return max_int(attend_matrix_shared(s, head_dim, splits, warps).bytes,
                 attend_short_shared(head_dim, 2, warps).bytes);
}

}  // namespace lathe::dev
