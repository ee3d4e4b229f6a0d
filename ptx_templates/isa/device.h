// Owns every instruction that C++ cannot spell, for NVRTC and for clang's NVPTX target. Each
// function has a host twin of the same meaning in isa/host.h and a GPU test that compares the two.
//
// Assembly in which other lanes take part must be volatile: the LLVM route lets the optimizer move
// all other assembly into and out of branches.
#pragma once

#include "isa/types.h"

#if defined(__CUDACC_RTC__)
#define LATHE_DEVICE static __device__ __forceinline__
// A template is compiled only when the kernel calls it: the other ops in a header cost nothing.
#define LATHE_OP     \
  template <int = 0> \
  __device__ __forceinline__ void
#else
#define LATHE_DEVICE static inline __attribute__((always_inline))
#define LATHE_OP extern "C" void
#endif
#define LATHE_PRAGMA(text) _Pragma(#text)
#define LATHE_UNROLL(n) LATHE_PRAGMA(unroll n)

#if !defined(__CUDACC_RTC__)
// Dynamic shared memory of the block; its size is given at launch.
extern "C" __attribute__((address_space(3), aligned(16))) lathe::dev::u8 lathe_shared[];
#endif

namespace lathe::dev {

#if defined(__CUDACC_RTC__)
LATHE_DEVICE int thread_index() {
  return static_cast<int>(threadIdx.x);
}
LATHE_DEVICE int block_x() {
  return static_cast<int>(blockIdx.x);
}
LATHE_DEVICE int block_y() {
  return static_cast<int>(blockIdx.y);
}
LATHE_DEVICE void block_barrier() {
  __syncthreads();
}
LATHE_DEVICE void warp_barrier() {
  __syncwarp();
}
LATHE_DEVICE u8* shared_memory() {
  extern __shared__ __align__(16) u8 lathe_shared[];
  return lathe_shared;
}
LATHE_DEVICE u32 shuffle_xor(u32 v, int mask) {
  return __shfl_xor_sync(0xffffffffu, v, mask);
}
LATHE_DEVICE u32 shuffle(u32 v, int lane) {
  return __shfl_sync(0xffffffffu, v, lane);
}
// That of lane `lane` of the four with the same lane / 4.
LATHE_DEVICE u32 shuffle_of_four(u32 v, int lane) {
  return __shfl_sync(0xffffffffu, v, lane, 4);
}
LATHE_DEVICE f32 fma(f32 a, f32 b, f32 c) {
  return __fmaf_rn(a, b, c);
}
LATHE_DEVICE f64 fma(f64 a, f64 b, f64 c) {
  return __fma_rn(a, b, c);
}
LATHE_DEVICE u32 as_u32(f32 v) {
  return __float_as_uint(v);
}
LATHE_DEVICE f32 as_f32(u32 v) {
  return __uint_as_float(v);
}
LATHE_DEVICE u64 as_u64(f64 v) {
  return static_cast<u64>(__double_as_longlong(v));
}
LATHE_DEVICE f64 as_f64(u64 v) {
  return __longlong_as_double(static_cast<i64>(v));
}
#else
LATHE_DEVICE int thread_index() {
  return __nvvm_read_ptx_sreg_tid_x();
}
LATHE_DEVICE int block_x() {
  return __nvvm_read_ptx_sreg_ctaid_x();
}
LATHE_DEVICE int block_y() {
  return __nvvm_read_ptx_sreg_ctaid_y();
}
LATHE_DEVICE void block_barrier() {
  __nvvm_bar_sync(0);
}
LATHE_DEVICE void warp_barrier() {
  __nvvm_bar_warp_sync(0xffffffffu);
}
LATHE_DEVICE u8* shared_memory() {
  return (u8*)lathe_shared;
}
LATHE_DEVICE u32 shuffle_xor(u32 v, int mask) {
  return static_cast<u32>(__nvvm_shfl_sync_bfly_i32(0xffffffffu, static_cast<int>(v), mask, 31));
}
LATHE_DEVICE u32 shuffle(u32 v, int lane) {
  return static_cast<u32>(__nvvm_shfl_sync_idx_i32(0xffffffffu, static_cast<int>(v), lane, 31));
}
LATHE_DEVICE u32 shuffle_of_four(u32 v, int lane) {
  return static_cast<u32>(
      __nvvm_shfl_sync_idx_i32(0xffffffffu, static_cast<int>(v), lane, 28 << 8 | 31));
}
LATHE_DEVICE f32 fma(f32 a, f32 b, f32 c) {
  return __builtin_fmaf(a, b, c);
}
LATHE_DEVICE f64 fma(f64 a, f64 b, f64 c) {
  return __builtin_fma(a, b, c);
}
LATHE_DEVICE u32 as_u32(f32 v) {
  return __builtin_bit_cast(u32, v);
}
LATHE_DEVICE f32 as_f32(u32 v) {
  return __builtin_bit_cast(f32, v);
}
LATHE_DEVICE u64 as_u64(f64 v) {
  return __builtin_bit_cast(u64, v);
}
LATHE_DEVICE f64 as_f64(u64 v) {
  return __builtin_bit_cast(f64, v);
}
#endif

// Bit i is lane i's `flag`. All lanes must call.
LATHE_DEVICE u32 ballot(bool flag) {
  u32 r;
  asm volatile("{.reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff;}"
               : "=r"(r)
               : "r"(static_cast<u32>(flag)));
  return r;
}

LATHE_DEVICE f32 shuffle_xor(f32 v, int mask) {
  return as_f32(shuffle_xor(as_u32(v), mask));
}
LATHE_DEVICE f32 shuffle(f32 v, int lane) {
  return as_f32(shuffle(as_u32(v), lane));
}
LATHE_DEVICE f64 shuffle_xor(f64 v, int mask) {
  const u64 bits = as_u64(v);
  const u32 low = shuffle_xor(static_cast<u32>(bits), mask);
  return as_f64(static_cast<u64>(shuffle_xor(static_cast<u32>(bits >> 32), mask)) << 32 | low);
}

// Correctly rounded division, square root and rounding to the nearest integer (ties to even).
LATHE_DEVICE f32 divide(f32 a, f32 b) {
  f32 r;
  asm("div.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
LATHE_DEVICE f32 square_root(f32 a) {
  f32 r;
  asm("sqrt.rn.f32 %0, %1;" : "=f"(r) : "f"(a));
  return r;
}
LATHE_DEVICE f32 round_even(f32 a) {
  f32 r;
  asm("cvt.rni.f32.f32 %0, %1;" : "=f"(r) : "f"(a));
  return r;
}

// 2^a to 2 ulp, 0 below 2^-126.
LATHE_DEVICE f32 power_of_two_near(f32 a) {
  f32 r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
  return r;
}

LATHE_DEVICE f32 f16_to_f32(u32 bits) {
  f32 r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(static_cast<u16>(bits)));
  return r;
}
LATHE_DEVICE u16 f32_to_f16(f32 v) {
  u16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v));
  return r;
}

// v, which the compiler then keeps in a register rather than compute again at each use.
LATHE_DEVICE u32 pinned(u32 v) {
  asm volatile("" : "+r"(v));
  return v;
}

// Bytes of the eight in (a, b), chosen by the four nibbles of `selector`, lowest first; a nibble of
// 8 or more gives the sign bit of byte nibble - 8, eight times.
LATHE_DEVICE u32 byte_permute(u32 a, u32 b, u32 selector) {
  u32 r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
  return r;
}
// (a & mask) | bits, in one instruction.
LATHE_DEVICE u32 masked_or(u32 a, u32 mask, u32 bits) {
  u32 r;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(a), "r"(mask), "r"(bits));
  return r;
}
// The lower 32 bits of (high:low) >> (shift & 31).
LATHE_DEVICE u32 funnel_right(u32 low, u32 high, u32 shift) {
  u32 r;
  asm("shf.r.wrap.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(low), "r"(high), "r"(shift));
  return r;
}

// Weights are read once per token: these loads keep them out of the L1 cache.
LATHE_DEVICE u32x4 stream_u32x4(const void* p) {
  u32x4 v;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(p));
  return v;
}
LATHE_DEVICE f64x2 stream_f64x2(const void* p) {
  f64x2 v;
  asm("ld.global.nc.L1::no_allocate.v2.f64 {%0, %1}, [%2];" : "=d"(v.x), "=d"(v.y) : "l"(p));
  return v;
}

}  // namespace lathe::dev
