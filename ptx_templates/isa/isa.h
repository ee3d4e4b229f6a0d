// Owns the choice of instruction layer: NVRTC and clang's NVPTX target share isa/device.h, the
// host emulator has isa/host.h. Ops include this file and nothing else.
//
// Rules an op keeps, so that all consumers fold it to the same code: shapes are plain int
// arguments, structure (format, flags) is templates; trip counts come from shapes alone; unrolling
// is bounded; every fused multiply-add is written as fma(); assembly stands only in isa/.
#pragma once

#include "isa/shape_math.h"
#include "isa/types.h"

#if defined(__CUDACC_RTC__) || defined(__NVPTX__)
#include "isa/device_async.h"
#include "isa/device_group.h"
#include "isa/device_mma.h"
#else
#include "isa/host_async.h"
#include "isa/host_group.h"
#include "isa/host_mma.h"
#endif

namespace lathe::dev {

enum : int { kWarp = 32 };

LATHE_DEVICE int lane_index() {
  return thread_index() & (kWarp - 1);
}
LATHE_DEVICE int warp_index() {
  return thread_index() / kWarp;
}

// A value that is the same in all lanes, told to the compiler: what follows from it alone is then
// computed once for the warp, beside the lanes' own instructions. All lanes must call.
LATHE_DEVICE int uniform(int value) {
  return static_cast<int>(shuffle(static_cast<u32>(value), 0));
}

// Sum and maximum over the 32 lanes of a warp, in every lane. All lanes must call.
LATHE_DEVICE f32 warp_sum(f32 value) {
  LATHE_UNROLL(5)
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = value + shuffle_xor(value, mask);
  return value;
}
LATHE_DEVICE f64 warp_sum(f64 value) {
  LATHE_UNROLL(5)
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = value + shuffle_xor(value, mask);
  return value;
}
LATHE_DEVICE f32 warp_max(f32 value) {
  LATHE_UNROLL(5)
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const f32 other = shuffle_xor(value, mask);
    value = other > value ? other : value;
  }
  return value;
}

}  // namespace lathe::dev
