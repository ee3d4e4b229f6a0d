// Owns the matrix instructions. Host twins: isa/host_mma.h.
//
// Fragments, lane = 4g + t: A (16 rows) word v holds row g + 8 (v & 1), columns 16 (v >> 1) + 4t
// ... + 3; B word h holds rows 16h + 4t ... + 3 of column g; the sums c[0..3] are rows g, g, g + 8,
// g + 8 and columns 2t, 2t + 1, 2t, 2t + 1.
#pragma once

#include "isa/device.h"

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

}  // namespace lathe::dev
