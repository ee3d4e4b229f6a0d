// Owns the matrix instructions. Host twins: isa/host_mma.h.
//
// Fragments, lane = 4g + t: A (16 rows) word v holds row g + 8 (v & 1), columns 16 (v >> 1) + 4t
// ... + 3; B word h holds rows 16h + 4t ... + 3 of column g; the sums c[0..3] are rows g, g, g + 8,
// g + 8 and columns 2t, 2t + 1, 2t, 2t + 1.
#pragma once

#include "isa/device_async.h"

namespace lathe::dev {

// c plus the sum of the products of four signed bytes of each.
LATHE_DEVICE i32 dot4(u32 a, u32 b, i32 c) {
  i32 r;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}

// c += A B for 16 x 32 unsigned bytes and 32 x 8 signed bytes, exactly.
LATHE_DEVICE void mma_u8_k32(i32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// The same with signed A.
LATHE_DEVICE void mma_s8_k32(i32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// Half as deep: A words 0 and 1, B word 0.
LATHE_DEVICE void mma_u8_k16(i32 (&c)[4], u32 a0, u32 a1, u32 b0) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(b0));
}

// c += A B for 16 x 16 and 16 x 8 halves, summed in f32. The words hold pairs: A word v row g + 8
// (v & 1), columns 8 (v >> 1) + 2t and the next; B word h rows 8h + 2t and the next of column g.
LATHE_DEVICE void mma_f16_k16(f32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
LATHE_DEVICE void mma_bf16_k16(f32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// c += A B for 16 x 32 and 32 x 8 numbers of e4m3, from sm_89 on: fragments as of mma_u8_k32(),
// summed in f32, of which some 14 bits are kept.
LATHE_DEVICE void mma_e4m3_k32(f32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// c += A B for 8 x 4 and 4 x 8 doubles: lane 4g + t has row g, column t of A and row t, column g of
// B; its sums are those of row g, columns 2t and 2t + 1.
LATHE_DEVICE void mma_f64_k4(f64 (&c)[2], f64 a, f64 b) {
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
               : "+d"(c[0]), "+d"(c[1])
               : "d"(a), "d"(b));
}

// B words of 32 rows and 8 columns from shared memory that has them column by column: lane i gives
// the address of 8 f16, of column i % 8 from row 8 (i / 8) on. Words 0 and 1 are those of the first
// 16 rows, 2 and 3 of the others.
LATHE_DEVICE void load_columns(u32 (&b)[4], const void* column) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(shared_address(column))
               : "memory");
}
// B words of 16 rows and 16 columns from shared memory that has them row by row: lane i gives the
// address of 8 f16, of row i % 16 from column 8 (i / 16) on, a multiple of 16 bytes. Words 0 and 1
// are those of the first 8 columns, 2 and 3 of the others.
LATHE_DEVICE void load_transposed(u32 (&b)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(shared_address(row))
               : "memory");
}

// The products of four warps, from sm_90a on: warps 4 i ... 4 i + 3 of a block call together. c +=
// A B for each warp's own 16 x 16 f16 and the 16 x 128 f16 that all four share: 128 columns of 64
// f16 in shared memory, of which `rows` are the first of the 16 rows. Column i is 128 bytes from i
// * 128 on within `columns`, a multiple of 1024, its piece j of 16 bytes at 16 (j ^ i % 8). c[j] is
// a fragment of columns 8 j ... 8 j + 7.
//
// Between group_begin() and group_end() nothing waits: operands and sums are not to be touched
// until group_wait() has waited for all groups of products but the last kLeft.
LATHE_DEVICE void group_multiply(f32 (&c)[16][4], u32 a0, u32 a1, u32 a2, u32 a3,
                                 const void* columns, int rows) {
  // Columns of 128 bytes, swizzled; 1024 bytes from eight of them to the next.
  const u64 b = static_cast<u64>((shared_address(columns) + static_cast<u32>(rows) * 2) >> 4) |
                1ull << 16 | 64ull << 32 | 1ull << 62;
  asm volatile(
      "{.reg .pred adds; setp.ne.b32 adds, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
      "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "
      "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
      "%62, %63"
      "}, {%64, %65, %66, %67}, %68, adds, 1, 1, 0;}"
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]),
        "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]),
        "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]),
        "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]),
        "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]), "+f"(c[7][0]), "+f"(c[7][1]),
        "+f"(c[7][2]), "+f"(c[7][3]), "+f"(c[8][0]), "+f"(c[8][1]), "+f"(c[8][2]), "+f"(c[8][3]),
        "+f"(c[9][0]), "+f"(c[9][1]), "+f"(c[9][2]), "+f"(c[9][3]), "+f"(c[10][0]), "+f"(c[10][1]),
        "+f"(c[10][2]), "+f"(c[10][3]), "+f"(c[11][0]), "+f"(c[11][1]), "+f"(c[11][2]),
        "+f"(c[11][3]), "+f"(c[12][0]), "+f"(c[12][1]), "+f"(c[12][2]), "+f"(c[12][3]),
        "+f"(c[13][0]), "+f"(c[13][1]), "+f"(c[13][2]), "+f"(c[13][3]), "+f"(c[14][0]),
        "+f"(c[14][1]), "+f"(c[14][2]), "+f"(c[14][3]), "+f"(c[15][0]), "+f"(c[15][1]),
        "+f"(c[15][2]), "+f"(c[15][3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}
LATHE_DEVICE void group_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
LATHE_DEVICE void group_end() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kLeft>
LATHE_DEVICE void group_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
// A sum that is touched after the wait, and not before.
LATHE_DEVICE void group_sum(f32& v) {
  asm volatile("" : "+f"(v)::"memory");
}
// What this thread's copies have brought to shared memory is there for group_multiply(), once the
// copies have been waited for and the block has met.
LATHE_DEVICE void group_operands_ready() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Two numbers of e4m3, the first in the lower byte, to the nearest, 448 at most; from sm_89 on.
LATHE_DEVICE u32 e4m3_pair(f32 low, f32 high) {
  u16 r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low));
  return r;
}

// Pairs of f16: each result is rounded once.
LATHE_DEVICE u32 half2(f32 low, f32 high) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
// The lower half of a pair twice, and the upper one: of these the assembler makes modifiers of the
// instructions that use them.
LATHE_DEVICE u32 lower_half2(u32 a) {
  u32 r;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {low, low};}" : "=r"(r) : "r"(a));
  return r;
}
LATHE_DEVICE u32 upper_half2(u32 a) {
  u32 r;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {high, high};}"
      : "=r"(r)
      : "r"(a));
  return r;
}
LATHE_DEVICE u32 half2_add(u32 a, u32 b) {
  u32 r;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
LATHE_DEVICE u32 half2_multiply(u32 a, u32 b) {
  u32 r;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
LATHE_DEVICE u32 half2_fma(u32 a, u32 b, u32 c) {
  u32 r;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}

}  // namespace lathe::dev
