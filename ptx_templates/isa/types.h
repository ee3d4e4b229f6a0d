// Owns the types device code is written in. No standard header: NVRTC has none.
#pragma once

namespace lathe::dev {

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;

static_assert(sizeof(u64) == 8 && sizeof(u32) == 4 && sizeof(u16) == 2, "device integer widths");

// Loads and stores of these are one instruction of 8 or 16 bytes.
struct alignas(8) u32x2 {
  u32 x, y;
};
struct alignas(16) u32x4 {
  u32 x, y, z, w;
};
struct alignas(8) f32x2 {
  f32 x, y;
};
struct alignas(16) f32x4 {
  f32 x, y, z, w;
};
struct alignas(16) f64x2 {
  f64 x, y;
};

}  // namespace lathe::dev
