// Owns the products of four warps whose operands are both in shared memory, from sm_90a on, and the
// barriers by which the warp that copies and those that multiply hand stages to each other. Host
// twins: isa/host_group.h.
#pragma once

#include "isa/device_mma.h"

namespace lathe::dev {

// Eight sums of a lane as operands of an instruction.
#define LATHE_SUMS(c, j)                                                         \
  "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3]), "+f"(c[j + 1][0]), \
      "+f"(c[j + 1][1]), "+f"(c[j + 1][2]), "+f"(c[j + 1][3])
#define LATHE_SUMS_64(c, j)                                                           \
  LATHE_SUMS(c, j), LATHE_SUMS(c, j + 2), LATHE_SUMS(c, j + 4), LATHE_SUMS(c, j + 6), \
      LATHE_SUMS(c, j + 8), LATHE_SUMS(c, j + 10), LATHE_SUMS(c, j + 12), LATHE_SUMS(c, j + 14)

// Rows of 128 bytes, swizzled; 1024 bytes from eight of them to the next.
LATHE_DEVICE u64 group_operand(const void* rows) {
  return static_cast<u64>(shared_address(rows) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// Warps 4 i ... 4 i + 3 of a block call together, as with group_multiply(): c = A B, plus c if it
// `adds`, for the 64 rows of 16 numbers at `a` and the 128 or 256 columns of 16 at `b`. Both are
// rows of 128 bytes in shared memory, those of each eight as columns of group_multiply(); `a` and
// `b` are 32 bytes times the number of the 16 past a multiple of 1024. Each warp has 16 of the rows
// in its sums.
#define LATHE_GROUP_256(name, type)                                                              \
  LATHE_DEVICE void name(f32(&c)[32][4], const void* a, const void* b, bool adds) {              \
    asm volatile(                                                                                \
        "{.reg .pred adds; setp.ne.b32 adds, %130, 0;\n"                                         \
        "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type                             \
        " {"                                                                                     \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                 \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "       \
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "       \
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "       \
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "       \
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "       \
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, " \
        "%111, "                                                                                 \
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "   \
        "%126, %127"                                                                             \
        "}, %128, %129, adds, 1, 1, 0, 0;}"                                                      \
        : LATHE_SUMS_64(c, 0), LATHE_SUMS_64(c, 16)                                              \
        : "l"(group_operand(a)), "l"(group_operand(b)), "r"(static_cast<u32>(adds)));            \
  }
LATHE_GROUP_256(group_multiply_256_f16, "f16")
LATHE_GROUP_256(group_multiply_256_bf16, "bf16")
#undef LATHE_GROUP_256

// Of e4m3 32 numbers are in the place of 16.
#define LATHE_GROUP_128(name, shape, majors)                                               \
  LATHE_DEVICE void name(f32(&c)[16][4], const void* a, const void* b, bool adds) {        \
    asm volatile(                                                                          \
        "{.reg .pred adds; setp.ne.b32 adds, %66, 0;\n"                                    \
        "wgmma.mma_async.sync.aligned." shape                                              \
        " {"                                                                               \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"   \
        "}, %64, %65, adds, 1, 1" majors ";}"                                              \
        : LATHE_SUMS_64(c, 0)                                                              \
        : "l"(group_operand(a)), "l"(group_operand(b)), "r"(static_cast<u32>(adds)));      \
  }
LATHE_GROUP_128(group_multiply_128_f16, "m64n128k16.f32.f16.f16", ", 0, 0")
LATHE_GROUP_128(group_multiply_128_e4m3, "m64n128k32.f32.e4m3.e4m3", "")
#undef LATHE_GROUP_128
#undef LATHE_SUMS_64
#undef LATHE_SUMS

// A barrier like those of copies whose phases end when `arrivals` threads have arrived.
LATHE_DEVICE void hand_over_init(u64* barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
}
LATHE_DEVICE void hand_over_arrive(u64* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// The bytes of the bulk_copy_part() that follow, by the same lane: the barrier's phase ends when
// they have landed.
LATHE_DEVICE void announce_copies(u64* barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
// As bulk_copy(), of bytes that are announced, which stay in the L2 cache for other blocks.
LATHE_DEVICE void bulk_copy_part(void* shared, const void* global, u32 bytes, u64* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

}  // namespace lathe::dev
