// Owns the instructions by which memory moves and threads of different blocks meet: bulk copies and
// the barriers they complete on, relaxed and releasing accesses, programmatic dependent launch.
// Host twins: isa/host_async.h.
#pragma once

#include "isa/device.h"

namespace lathe::dev {

// A shared-memory pointer as the 32-bit address that the instructions take.
LATHE_DEVICE u32 shared_address(const void* p) {
#if defined(__CUDACC_RTC__)
  return static_cast<u32>(__cvta_generic_to_shared(p));
#else
  return (u32)(u64)(__attribute__((address_space(3))) const void*)p;
#endif
}

// 16 bytes of shared memory in one load. NVRTC may make several of one that is only written as a
// dereference, and which ones it chooses varies from run to run.
LATHE_DEVICE f32x4 shared_f32x4(const f32* p) {
  f32x4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(shared_address(p))
               : "memory");
  return v;
}

// 16 bytes of shared memory in place of four words, if a == b.
LATHE_DEVICE void shared_u32x4_if(int a, int b, const void* p, u32& w0, u32& w1, u32& w2, u32& w3) {
  asm volatile(
      "{.reg .pred same;\n"
      "setp.eq.s32 same, %5, %6;\n"
      "@same ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];}"
      : "+r"(w0), "+r"(w1), "+r"(w2), "+r"(w3)
      : "r"(shared_address(p)), "r"(a), "r"(b)
      : "memory");
}

// Accesses that other blocks of the grid take part in. Relaxed: each is atomic and sees what has
// reached the L2 cache, with no order among different addresses.
LATHE_DEVICE u32 load_relaxed(const u32* p) {
  u32 v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
LATHE_DEVICE u64 load_relaxed(const u64* p) {
  u64 v;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
LATHE_DEVICE u32x4 load_relaxed(const u32x4* p) {
  u32x4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}
LATHE_DEVICE void store_relaxed(u32* p, u32 v) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
LATHE_DEVICE void store_relaxed(u64* p, u64 v) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
// A store that the host sees while the kernel runs.
LATHE_DEVICE void store_to_host(i32* p, i32 v) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

// Between one look at such a value and the next.
LATHE_DEVICE void poll_pause() {}

// The value before. What this thread wrote before is seen by whoever reads the new value this way.
LATHE_DEVICE u32 atomic_add(u32* p, u32 v) {
  u32 r;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(r)
               : "l"(p), "r"(v)
               : "memory");
  return r;
}
// Orders this thread's accesses before and after it for the whole device.
LATHE_DEVICE void device_fence() {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

// True in one lane of the warp, always the same. All lanes must call.
LATHE_DEVICE bool elected() {
  u32 r;
  asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}" : "=r"(r));
  return r != 0;
}

// A barrier in shared memory on which bulk copies complete: each phase ends when one thread has
// arrived and all the bytes it announced have landed.
LATHE_DEVICE void copy_barrier_init(u64* barrier) {
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}
// Makes initialized barriers known to the copy engine; then the block needs a block_barrier().
LATHE_DEVICE void copy_barriers_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Copies `bytes`, a multiple of 16, between addresses that are multiples of 16. One lane calls. The
// data is not kept in the L2 cache longer than needed.
LATHE_DEVICE void bulk_copy(void* shared, const void* global, u32 bytes, u64* barrier) {
  const u32 at = shared_address(barrier);
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
               : "memory");
  // The policy is what createpolicy.fractional.L2::evict_first with a fraction of 1 makes.
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(at), "l"(0x12f0000000000000ull)
      : "memory");
}
// Asks for as much to be in the L2 cache, for a copy that comes later. One lane calls.
LATHE_DEVICE void bulk_prefetch(const void* global, u32 bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}
// Waits for the phase of the given parity (0, then 1, then 0 ...) to end.
LATHE_DEVICE void copy_barrier_wait(u64* barrier, u32 parity) {
  asm volatile(
      "{.reg .pred done;\n"
      "waiting:\n"
      "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      "@!done bra waiting;}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// Copies of 16 bytes by each thread, between addresses that are multiples of 16, and the wait for
// all but the `kLeft` last groups of this thread's copies.
LATHE_DEVICE void copy_async(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)),
               "l"(global)
               : "memory");
}
LATHE_DEVICE void copy_async_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kLeft>
LATHE_DEVICE void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// Programmatic dependent launch: the next kernel of the stream may start now; and the wait for all
// memory of the kernel before. Without that launch attribute both do nothing.
LATHE_DEVICE void allow_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
LATHE_DEVICE void wait_for_predecessor() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace lathe::dev
