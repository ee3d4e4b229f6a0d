// Owns the integer arithmetic of shapes, which device code and the host's launch geometry share.
#pragma once

#if defined(__CUDACC_RTC__)
#define LATHE_SHAPE static __device__ constexpr
#else
#define LATHE_SHAPE static constexpr
#endif

namespace lathe::dev {

LATHE_SHAPE int ceil_div(int a, int b) {
  return (a + b - 1) / b;
}
LATHE_SHAPE int min_int(int a, int b) {
  return a < b ? a : b;
}
LATHE_SHAPE int max_int(int a, int b) {
  return a > b ? a : b;
}

}  // namespace lathe::dev
