// Owns the host twins of isa/device_async.h. Fibers of one block run one at a time, and copies are
// done when they are issued.
#pragma once

#include <cstring>

#include "isa/host.h"

namespace lathe::emulation {
// Lets other threads go on; the deadlock detector counts turns without progress.
void pause_for_memory();
// Records what is asked for ahead of its copy, and the copies.
void prefetch(const void* global, unsigned bytes);
void copy(const void* global, unsigned bytes);
}  // namespace lathe::emulation

namespace lathe::dev {

LATHE_DEVICE f32x4 shared_f32x4(const f32* p) {
  return *reinterpret_cast<const f32x4*>(p);
}
LATHE_DEVICE void shared_u32x4_if(int a, int b, const void* p, u32& w0, u32& w1, u32& w2, u32& w3) {
  if (a != b) return;
  const u32x4 v = *static_cast<const u32x4*>(p);
  w0 = v.x;
  w1 = v.y;
  w2 = v.z;
  w3 = v.w;
}
LATHE_DEVICE u32 load_relaxed(const u32* p) {
  return *p;
}
LATHE_DEVICE u64 load_relaxed(const u64* p) {
  return *p;
}
LATHE_DEVICE u32x4 load_relaxed(const u32x4* p) {
  return *p;
}
LATHE_DEVICE void store_relaxed(u32* p, u32 v) {
  *p = v;
}
LATHE_DEVICE void store_relaxed(u64* p, u64 v) {
  *p = v;
}
LATHE_DEVICE void store_to_host(i32* p, i32 v) {
  *p = v;
}
LATHE_DEVICE void poll_pause() {
  emulation::pause_for_memory();
}
LATHE_DEVICE u32 atomic_add(u32* p, u32 v) {
  const u32 before = *p;
  *p += v;
  return before;
}
LATHE_DEVICE void device_fence() {}

LATHE_DEVICE bool elected() {
  return thread_index() % 32 == 0;
}

// Counts the phases that have ended.
LATHE_DEVICE void copy_barrier_init(u64* barrier) {
  *barrier = 0;
}
LATHE_DEVICE void copy_barriers_ready() {}
LATHE_DEVICE void bulk_copy(void* shared, const void* global, u32 bytes, u64* barrier) {
  std::memcpy(shared, global, bytes);
  emulation::copy(global, bytes);
  ++*barrier;
}
LATHE_DEVICE void bulk_prefetch(const void* global, u32 bytes) {
  emulation::prefetch(global, bytes);
}
LATHE_DEVICE void copy_barrier_wait(u64* barrier, u32 parity) {
  while ((*barrier & 1) == parity) emulation::pause_for_memory();
}

LATHE_DEVICE void copy_async(void* shared, const void* global) {
  std::memcpy(shared, global, 16);
}
LATHE_DEVICE void copy_async_group() {}
template <int kLeft>
LATHE_DEVICE void copy_async_wait() {}

LATHE_DEVICE void allow_dependents() {}
LATHE_DEVICE void wait_for_predecessor() {}

}  // namespace lathe::dev
