// Owns the sizes of dense products: how the rows of an operand lie in memory and how blocks share
// the result. Device code and the host (codegen/gemm_operand.cpp, codegen/kernels/gemm.cpp) read
// it.
#pragma once

#include "isa/shape_math.h"

namespace lathe::dev {

// An operand is cut in blocks of 128 rows by 64 values, along k first; what is missing of the last
// ones is zeros. A block has one plane of 16-bit numbers, or two that are added up. A row of a
// plane is 128 bytes, and its piece i of 8 numbers is at 16 (i ^ row % 8): so the matrix units read
// it. Behind the blocks each row has an exponent: numbers are those of the planes times 2 to that.
//
// Two numbers of e4m3 are in the place of one of 16 bits, so that k is half of theirs here; each
// row has a factor, an f32, in place of the exponent.
enum : int {
  kGemmRows = 128,
  kGemmDepth = 64,
  kGemmRowBytes = kGemmDepth * 2,
  kGemmPlaneBytes = kGemmRows * kGemmRowBytes,
  // A row's greatest number has this exponent in its planes: far from the largest of f16, and a
  // second plane keeps 22 bits of what is up to 2^17 times as small.
  kGemmTop = 14,
};
LATHE_SHAPE int gemm_row_blocks(int rows) {
  return ceil_div(rows, kGemmRows);
}
LATHE_SHAPE int gemm_depth_blocks(int k) {
  return ceil_div(k, kGemmDepth);
}
// Where the exponents are.
LATHE_SHAPE long long gemm_exponents_at(int rows, int k, int planes) {
  return static_cast<long long>(gemm_row_blocks(rows)) * gemm_depth_blocks(k) * planes *
         kGemmPlaneBytes;
}
LATHE_SHAPE long long gemm_operand_bytes(int rows, int k, int planes) {
  return gemm_exponents_at(rows, k, planes) +
         static_cast<long long>(gemm_row_blocks(rows)) * kGemmRows * 4;
}
// Where the first plane has eight numbers of a row, from k = 8 `piece` on.
LATHE_SHAPE long long gemm_piece_at(int row, int piece, int depth_blocks, int planes) {
  const long long block = static_cast<long long>(row / kGemmRows) * depth_blocks + piece / 8;
  return block * planes * kGemmPlaneBytes + row % kGemmRows * kGemmRowBytes +
         ((piece % 8) ^ (row % 8)) * 16;
}

// The exponent of a row whose greatest magnitude has these bits as f32; 0 if that is no number.
LATHE_SHAPE int gemm_exponent(unsigned greatest) {
  const int exponent = static_cast<int>(greatest >> 23) - 127;
  return exponent == 128 ? 0 : max_int(exponent - int{kGemmTop}, -126);
}

// Of e4m3 the greatest number, which a row's greatest becomes, and the least factor, as bits:
// 2^-126.
enum : int { kGemmEightMost = 448, kGemmEightLeast = 0x00800000 };

// The words of 16 bits that k numbers of a row take in a plane.
LATHE_SHAPE int gemm_words(int k, bool eight) {
  return eight ? ceil_div(k, 2) : k;
}

// A block makes 128 rows of x by so many columns, rows of w, at a time. It goes along k in stages
// of 64 values; a ring of them fills shared memory, then come two barriers for each. Where sums are
// those of a stage only (`by_stage`) a lane has them twice.
struct GemmTile {
  int columns, stages;
  int x_bytes, stage_bytes;
  int barriers, bytes;
};
LATHE_SHAPE GemmTile gemm_tile(int planes, bool by_stage, bool grouped) {
  GemmTile t{};
  t.columns = !grouped ? 64 : by_stage ? 128 : 256;
  t.stages = !grouped ? 4 / planes : planes == 2 ? 3 : by_stage ? 6 : 4;
  t.x_bytes = planes * kGemmPlaneBytes;
  t.stage_bytes = t.x_bytes + planes * t.columns * kGemmRowBytes;
  t.barriers = t.stages * t.stage_bytes;
  t.bytes = t.barriers + (grouped ? t.stages * 16 : 0);
  return t;
}
enum : int { kGemmWarps = 8, kGemmThreads = kGemmWarps * 32 };
LATHE_SHAPE int gemm_tiles(int m, int n, int columns) {
  return gemm_row_blocks(m) * ceil_div(n, columns);
}

// Of f64 rows lie as they are. A block makes as many rows and columns of them as warps that
// multiply by themselves do, 16 values of k at a time. Shared memory has two such stages, of x's
// rows, then w's; their pitch lets lanes that read four values of eight rows take different banks.
enum : int {
  kGemmF64Columns = 64,
  kGemmF64Depth = 16,
  kGemmF64Pitch = kGemmF64Depth + 4,
  kGemmF64Stage = (kGemmRows + kGemmF64Columns) * kGemmF64Pitch,  // values
  kGemmF64Bytes = 2 * kGemmF64Stage * 8,
};

// The order in which tiles are made: bands of eight row blocks, so that what is made at one time
// reads few rows of either operand.
enum : int { kGemmBand = 8 };
struct GemmPlace {
  int row_block, column_block;
};
LATHE_SHAPE GemmPlace gemm_place(int tile, int row_blocks, int column_blocks) {
  const int band = tile / (kGemmBand * column_blocks), within = tile % (kGemmBand * column_blocks);
  const int height = min_int(kGemmBand, row_blocks - band * kGemmBand);
  return {band * kGemmBand + within % height, within / height};
}

}  // namespace lathe::dev
