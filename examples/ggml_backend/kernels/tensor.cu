// Owns what every kernel of the back end starts with: how it sees a tensor, reads and writes its
// elements, and reduces over a block. The shapes D (the result), A, B, C and M (the operands), the
// numbers N and the reals R are constants that stand between this file and the kernel.
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;

enum Type { kF32, kF16, kBF16, kI32, kI16, kI64 };

struct Tensor {
  int type;
  i64 ne[4];  // elements
  i64 nb[4];  // bytes from one to the next
};

// All kernels take the same six pointers; one that a kernel has no use for is the result's.
#define KERNEL(name)                                                                         \
  extern "C" __global__ void name(u8* d, const u8* a, const u8* b, const u8* c, const u8* m, \
                                  const u8* s)

#ifdef __CUDACC_RTC__
__device__ inline float of_half(u16 bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
__device__ inline u16 to_half(float value) {
  u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#endif
__device__ inline float of_bits(u32 bits) {
  union {
    u32 bits;
    float value;
  } pun = {bits};
  return pun.value;
}
__device__ inline u32 to_bits(float value) {
  union {
    float value;
    u32 bits;
  } pun = {value};
  return pun.bits;
}
__device__ inline u16 to_bfloat(float value) {
  const u32 bits = to_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (u16)(bits >> 16 | 64);
  return (u16)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

__device__ inline float load(const u8* p, int type) {
  switch (type) {
    case kF16:
      return of_half(*(const u16*)p);
    case kBF16:
      return of_bits((u32) * (const u16*)p << 16);
    case kI32:
      return (float)*(const int*)p;
    default:
      return *(const float*)p;
  }
}
__device__ inline void store(u8* p, int type, float value) {
  switch (type) {
    case kF16:
      *(u16*)p = to_half(value);
      break;
    case kBF16:
      *(u16*)p = to_bfloat(value);
      break;
    case kI32:
      *(int*)p = (int)value;
      break;
    default:
      *(float*)p = value;
  }
}
__device__ inline i64 load_index(const u8* p, int type) {
  return type == kI64 ? *(const i64*)p : *(const int*)p;
}
// As it is, without a look at its value.
__device__ inline void copy(u8* to, const u8* from, int type) {
  switch (type) {
    case kF16:
    case kBF16:
    case kI16:
      *(u16*)to = *(const u16*)from;
      break;
    case kI64:
      *(i64*)to = *(const i64*)from;
      break;
    default:
      *(u32*)to = *(const u32*)from;
  }
}

struct Place {
  u32 i0, i1, i2, i3;
};
// Element number `index` of a tensor, counted along its first extent first.
__device__ inline Place place(const Tensor& t, u32 index) {
  Place at;
  at.i0 = index % (u32)t.ne[0];
  index /= (u32)t.ne[0];
  at.i1 = index % (u32)t.ne[1];
  index /= (u32)t.ne[1];
  at.i2 = index % (u32)t.ne[2];
  at.i3 = index / (u32)t.ne[2];
  return at;
}
__device__ inline i64 bytes_to(const Tensor& t, u32 i0, u32 i1, u32 i2, u32 i3) {
  return i0 * t.nb[0] + i1 * t.nb[1] + i2 * t.nb[2] + i3 * t.nb[3];
}
__device__ inline i64 bytes_to(const Tensor& t, const Place& at) {
  return bytes_to(t, at.i0, at.i1, at.i2, at.i3);
}
// The same of a tensor that is repeated to the size of a larger one.
__device__ inline i64 bytes_to_repeated(const Tensor& t, const Place& at) {
  return bytes_to(t, at.i0 % (u32)t.ne[0], at.i1 % (u32)t.ne[1], at.i2 % (u32)t.ne[2],
                  at.i3 % (u32)t.ne[3]);
}
__device__ inline u32 elements(const Tensor& t) {
  return (u32)(t.ne[0] * t.ne[1] * t.ne[2] * t.ne[3]);
}
__device__ inline u32 global_thread() {
  return blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ inline float warp_sum(float value) {
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(~0u, value, mask);
  return value;
}
__device__ inline float warp_max(float value) {
  for (int mask = 16; mask > 0; mask /= 2) value = fmaxf(value, __shfl_xor_sync(~0u, value, mask));
  return value;
}
// Of whole warps, at most 32; every thread of the block gets the result.
__device__ inline float block_sum(float value) {
  __shared__ float part[32];
  value = warp_sum(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? part[threadIdx.x % 32] : 0.0f);
}
__device__ inline float block_max(float value) {
  __shared__ float part[32];
  value = warp_max(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_max(part[threadIdx.x % 32 < blockDim.x / 32 ? threadIdx.x % 32 : 0]);
}
