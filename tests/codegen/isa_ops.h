// Owns one small kernel per function of isa/: word i of the result is the function of words i of
// three inputs. Compiled for the GPU by NVRTC and for the host, where the emulator runs it.
#pragma once

#include "ops/math.h"

namespace lathe::dev {

// Where the words of this thread stand.
LATHE_DEVICE int isa_index(int threads) {
  return (block_y() * 2 + block_x()) * threads + thread_index();
}

#define LATHE_ISA_OP(name, expression)                                                         \
  LATHE_OP isa_##name(const u32* in0, const u32* in1, const u32* in2, u32* out, int threads) { \
    const int i = isa_index(threads);                                                          \
    const u32 a = in0[i], b = in1[i], c = in2[i];                                              \
    (void)a, (void)b, (void)c;                                                                 \
    out[i] = (expression);                                                                     \
  }

LATHE_ISA_OP(fma, as_u32(fma(as_f32(a), as_f32(b), as_f32(c))))
LATHE_ISA_OP(divide, as_u32(divide(as_f32(a), as_f32(b))))
LATHE_ISA_OP(square_root, as_u32(square_root(as_f32(a))))
LATHE_ISA_OP(round_even, as_u32(round_even(as_f32(a))))
LATHE_ISA_OP(f16_to_f32, as_u32(f16_to_f32(a)))
LATHE_ISA_OP(f32_to_f16, f32_to_f16(as_f32(a)))
LATHE_ISA_OP(byte_permute, byte_permute(a, b, c))
LATHE_ISA_OP(masked_or, masked_or(a, b, c))
LATHE_ISA_OP(funnel_right, funnel_right(a, b, c))
LATHE_ISA_OP(shuffle, shuffle(a, static_cast<int>(b & 31u)))
LATHE_ISA_OP(shuffle_f32, as_u32(shuffle(as_f32(a), 7)))
LATHE_ISA_OP(shuffle_xor, shuffle_xor(a, 1) ^ shuffle_xor(b, 16) ^ shuffle_xor(c, 31))
LATHE_ISA_OP(shuffle_xor_f32, as_u32(shuffle_xor(as_f32(a), 4)))
LATHE_ISA_OP(warp_sum, as_u32(warp_sum(static_cast<f32>(static_cast<i32>(a)))))
LATHE_ISA_OP(warp_max, as_u32(warp_max(static_cast<f32>(static_cast<i32>(a)))))
LATHE_ISA_OP(indices, static_cast<u32>(thread_index() | lane_index() << 10 | warp_index() << 16 |
                                       block_x() << 24 | block_y() << 28))
LATHE_ISA_OP(add_multiply, as_u32(as_f32(a) * as_f32(b) + as_f32(c)))
LATHE_ISA_OP(integer_to_f32, as_u32(static_cast<f32>(static_cast<i32>(a))))
LATHE_ISA_OP(exponential, as_u32(exponential(as_f32(a))))
LATHE_ISA_OP(silu, as_u32(silu(as_f32(a))))
LATHE_ISA_OP(gelu_tanh, as_u32(gelu_tanh(as_f32(a))))
LATHE_ISA_OP(gelu_erf, as_u32(gelu_erf(as_f32(a))))

// Four words at once, from the 16-byte line that holds word i.
LATHE_OP isa_stream(const u32* in0, const u32*, const u32*, u32* out, int threads) {
  const int i = isa_index(threads);
  const u32x4 v = stream_u32x4(in0 + i / 4 * 4);
  out[i] = i % 4 == 0 ? v.x : i % 4 == 1 ? v.y : i % 4 == 2 ? v.z : v.w;
}

// The line of shared memory that holds the thread's word.
LATHE_OP isa_shared_line(const u32* in0, const u32*, const u32*, u32* out, int threads) {
  u32* shared = reinterpret_cast<u32*>(shared_memory());
  const int i = isa_index(threads), t = thread_index();
  shared[t] = in0[i];
  block_barrier();
  const f32x4 v = shared_f32x4(reinterpret_cast<const f32*>(shared) + t / 4 * 4);
  out[i] = as_u32(t % 4 == 0 ? v.x : t % 4 == 1 ? v.y : t % 4 == 2 ? v.z : v.w);
}

// Through shared memory, to the mirrored thread of the block.
LATHE_OP isa_block_barrier(const u32* in0, const u32*, const u32*, u32* out, int threads) {
  u32* shared = reinterpret_cast<u32*>(shared_memory());
  const int i = isa_index(threads);
  shared[thread_index()] = in0[i];
  block_barrier();
  out[i] = shared[threads - 1 - thread_index()];
}

// The same within a warp.
LATHE_OP isa_warp_barrier(const u32* in0, const u32*, const u32*, u32* out, int threads) {
  u32* shared = reinterpret_cast<u32*>(shared_memory());
  const int i = isa_index(threads);
  shared[thread_index()] = in0[i];
  warp_barrier();
  out[i] = shared[thread_index() ^ 31];
}

LATHE_ISA_OP(ballot, ballot(a > b) ^ ballot((c & 1u) != 0) << 1)
LATHE_ISA_OP(pinned, pinned(a) ^ pinned(b + c))
LATHE_ISA_OP(uniform, static_cast<u32>(uniform(static_cast<int>(a ^ b))))
// Which lane it is may differ from host to device: that it is one, and the same twice.
LATHE_DEVICE u32 isa_one_elected() {
  const u32 first = ballot(elected()), second = ballot(elected());
  return first != 0 && (first & (first - 1)) == 0 && first == second;
}
LATHE_ISA_OP(elected, a ^ isa_one_elected())
LATHE_ISA_OP(dot4, static_cast<u32>(dot4(a, b, static_cast<i32>(c) >> 8)))

// One word of a fragment of sums, in which none of them is lost.
LATHE_DEVICE u32 mixed(const i32 (&c)[4]) {
  u32 out = 0;
  for (int i = 0; i < 4; ++i) out = out * 0x9e3779b1u + static_cast<u32>(c[i]);
  return out;
}
#define LATHE_ISA_MMA(name, ...)                                                               \
  LATHE_OP isa_##name(const u32* in0, const u32* in1, const u32* in2, u32* out, int threads) { \
    const int i = isa_index(threads);                                                          \
    const u32 a[] = {in0[i], in1[i], in2[i], in0[i ^ 1]}, b[] = {in1[i ^ 1], in2[i ^ 1]};      \
    i32 c[4];                                                                                  \
    for (int j = 0; j < 4; ++j) c[j] = static_cast<i32>(a[j] ^ b[j / 2]) >> 8;                 \
    name(c, __VA_ARGS__);                                                                      \
    out[i] = mixed(c);                                                                         \
  }
LATHE_ISA_MMA(mma_u8_k32, a[0], a[1], a[2], a[3], b[0], b[1])
LATHE_ISA_MMA(mma_s8_k32, a[0], a[1], a[2], a[3], b[0], b[1])
LATHE_ISA_MMA(mma_u8_k16, a[0], a[1], b[0])

// Of f16 or bf16, by the function that makes their bits. All are small integers, so that sums are
// exact in any order.
#define LATHE_ISA_MMA_HALF(name, bits_of)                                                      \
  LATHE_OP isa_##name(const u32* in0, const u32* in1, const u32* in2, u32* out, int threads) { \
    const int i = isa_index(threads);                                                          \
    const u32 from[] = {in0[i], in1[i], in2[i], in0[i ^ 1], in1[i ^ 1], in2[i ^ 1]};           \
    u32 w[6];                                                                                  \
    f32 c[4];                                                                                  \
    for (int j = 0; j < 6; ++j) {                                                              \
      const f32 low = static_cast<f32>(static_cast<i32>(from[j]) >> 25);                       \
      const f32 high = static_cast<f32>(static_cast<i32>(from[j] << 12) >> 25);                \
      w[j] = bits_of(low) | bits_of(high) << 16;                                               \
    }                                                                                          \
    for (int j = 0; j < 4; ++j) c[j] = static_cast<f32>(static_cast<i32>(from[j] ^ i) >> 20);  \
    name(c, w[0], w[1], w[2], w[3], w[4], w[5]);                                               \
    i32 sums[4];                                                                               \
    for (int j = 0; j < 4; ++j) sums[j] = static_cast<i32>(c[j]);                              \
    out[i] = mixed(sums);                                                                      \
  }
LATHE_DEVICE u32 f16_bits(f32 v) {
  return f32_to_f16(v);
}
LATHE_DEVICE u32 bf16_bits(f32 v) {
  return as_u32(v) >> 16;
}
LATHE_ISA_MMA_HALF(mma_f16_k16, f16_bits)
LATHE_ISA_MMA_HALF(mma_bf16_k16, bf16_bits)
// Of e4m3 likewise.
LATHE_DEVICE u32 e4m3_word(u32 bits) {
  f32 v[4];
  for (int j = 0; j < 4; ++j) v[j] = static_cast<f32>(static_cast<i32>(bits << 8 * j) >> 29);
  return e4m3_pair(v[0], v[1]) | e4m3_pair(v[2], v[3]) << 16;
}
LATHE_OP isa_mma_e4m3_k32(const u32* in0, const u32* in1, const u32* in2, u32* out, int threads) {
  const int i = isa_index(threads);
  const u32 from[] = {in0[i], in1[i], in2[i], in0[i ^ 1], in1[i ^ 1], in2[i ^ 1]};
  u32 w[6];
  f32 c[4];
  for (int j = 0; j < 6; ++j) w[j] = e4m3_word(from[j]);
  for (int j = 0; j < 4; ++j) c[j] = static_cast<f32>(static_cast<i32>(from[j] ^ i) >> 24);
  mma_e4m3_k32(c, w[0], w[1], w[2], w[3], w[4], w[5]);
  i32 sums[4];
  for (int j = 0; j < 4; ++j) sums[j] = static_cast<i32>(c[j]);
  out[i] = mixed(sums);
}
LATHE_ISA_OP(e4m3_pair, e4m3_pair(as_f32(a), as_f32(b)))

// Doubles of two words each, near 1, and a word of one.
LATHE_DEVICE f64 f64_of(u32 high, u32 low) {
  const u32 exponent = 0x3f0u + (low & 31u);
  return as_f64(static_cast<u64>((high & 0x800fffffu) | exponent << 20) << 32 | low);
}
LATHE_DEVICE u32 folded(f64 v) {
  const u64 bits = as_u64(v);
  return static_cast<u32>(bits) * 3 ^ static_cast<u32>(bits >> 32);
}
LATHE_DEVICE f64 integer_f64(u32 bits) {
  return static_cast<f64>(static_cast<i32>(bits) >> 12);
}
LATHE_ISA_OP(fma_f64, folded(fma(f64_of(a, b), f64_of(b, c), f64_of(c, a))))
LATHE_ISA_OP(shuffle_xor_f64, folded(shuffle_xor(f64_of(a, b), 4)))
LATHE_ISA_OP(warp_sum_f64, folded(warp_sum(integer_f64(a))))
LATHE_OP isa_mma_f64_k4(const u32* in0, const u32* in1, const u32* in2, u32* out, int threads) {
  const int i = isa_index(threads);
  f64 c[2] = {integer_f64(in2[i]), integer_f64(in2[i ^ 1])};
  mma_f64_k4(c, integer_f64(in0[i]), integer_f64(in1[i]));
  out[i] = folded(c[0]) * 5 ^ folded(c[1]);
}
LATHE_OP isa_stream_f64x2(const u32* in0, const u32*, const u32*, u32* out, int threads) {
  const int i = isa_index(threads);
  const f64x2 v = stream_f64x2(in0 + i / 4 * 4);
  const u64 bits = as_u64(i % 4 < 2 ? v.x : v.y);
  out[i] = static_cast<u32>(i % 2 == 0 ? bits : bits >> 32);
}
LATHE_OP isa_load_transposed(const u32* in0, const u32*, const u32*, u32* out, int threads) {
  u32* shared = reinterpret_cast<u32*>(shared_memory());
  const int i = isa_index(threads), lane = lane_index();
  shared[thread_index()] = in0[i];
  block_barrier();
  // A warp's 128 bytes are rows of 16; lanes past the eighth look at those of others.
  u32 b[4];
  load_transposed(b, shared_memory() + warp_index() * 128 + lane * 5 % 8 * 16);
  out[i] = b[0] ^ b[1] * 3 ^ b[2] * 5 ^ b[3] * 7;
}
LATHE_OP isa_load_columns(const u32* in0, const u32*, const u32*, u32* out, int threads) {
  u32* shared = reinterpret_cast<u32*>(shared_memory());
  const int i = isa_index(threads), lane = lane_index();
  shared[thread_index()] = in0[i];
  block_barrier();
  u32 b[4];
  load_columns(b, shared_memory() + warp_index() * 128 + lane * 3 % 8 * 16);
  out[i] = b[0] ^ b[1] * 3 ^ b[2] * 5 ^ b[3] * 7;
}
LATHE_OP isa_copy_async(const u32* in0, const u32*, const u32*, u32* out, int threads) {
  const u32* landed = reinterpret_cast<const u32*>(shared_memory());
  const int i = isa_index(threads), t = thread_index();
  if (t % 4 == 0) copy_async(shared_memory() + t * 4, in0 + i);
  copy_async_group();
  copy_async_group();
  copy_async_wait<1>();
  block_barrier();
  out[i] = landed[threads - 1 - t];
}
// Halves that are no NaN, whose payloads differ.
LATHE_DEVICE u32 finite_halves(u32 pair) {
  return (pair & 0x7c00u) == 0x7c00u || (pair >> 16 & 0x7c00u) == 0x7c00u ? pair & 0xbfffbfffu
                                                                          : pair;
}
LATHE_ISA_OP(half2, half2(as_f32(a & 0xbfffffffu), as_f32(b & 0xbfffffffu)))
LATHE_ISA_OP(half2_add, half2_add(finite_halves(a), finite_halves(b)))
LATHE_ISA_OP(half2_multiply, half2_multiply(finite_halves(a), finite_halves(b)))
LATHE_ISA_OP(half2_fma, half2_fma(finite_halves(a), finite_halves(b), finite_halves(c)))

LATHE_OP isa_relaxed_u32(const u32* in0, const u32*, const u32*, u32* out, int threads) {
  const int i = isa_index(threads);
  store_relaxed(out + i, ~load_relaxed(in0 + i));
  out[i] = load_relaxed(out + i) ^ 1u;
}
LATHE_OP isa_store_to_host(const u32* in0, const u32*, const u32*, u32* out, int threads) {
  const int i = isa_index(threads);
  store_to_host(reinterpret_cast<i32*>(out + i), static_cast<i32>(~in0[i]));
}
// A pair of words by its even thread, which reads it back.
LATHE_OP isa_relaxed_u64(const u32* in0, const u32*, const u32*, u32* out, int threads) {
  const int i = isa_index(threads);
  if (i % 2 != 0) return;
  u64* pair = reinterpret_cast<u64*>(out + i);
  store_relaxed(pair, load_relaxed(reinterpret_cast<const u64*>(in0 + i)));
  store_relaxed(pair, load_relaxed(pair) * 3);
}
LATHE_OP isa_relaxed_u32x4(const u32* in0, const u32*, const u32*, u32* out, int threads) {
  const int i = isa_index(threads);
  const u32x4 v = load_relaxed(reinterpret_cast<const u32x4*>(in0 + i / 4 * 4));
  out[i] = i % 4 == 0 ? v.x : i % 4 == 1 ? v.y : i % 4 == 2 ? v.z : v.w;
}
// Three times on a thread's own word, and the values before decide the last.
LATHE_OP isa_atomic_add(const u32* in0, const u32* in1, const u32*, u32* out, int threads) {
  const int i = isa_index(threads);
  const u32 first = atomic_add(out + i, in0[i]);
  device_fence();
  const u32 second = atomic_add(out + i, in1[i]);
  atomic_add(out + i, first ^ second * 3);
}
// All of a warp on one word.
LATHE_OP isa_atomic_sum(const u32* in0, const u32*, const u32*, u32* out, int threads) {
  const int i = isa_index(threads);
  atomic_add(out + i / 32 * 32, in0[i]);
}

// 256 bytes at a time into shared memory, the second time on the barrier's other parity; the second
// are asked for before.
LATHE_OP isa_bulk_copy(const u32* in0, const u32* in1, const u32*, u32* out, int threads) {
  u64* barrier = reinterpret_cast<u64*>(shared_memory());
  const u32* landed = reinterpret_cast<const u32*>(shared_memory() + 256);
  const int i = isa_index(threads), t = thread_index();
  if (t == 0) {
    copy_barrier_init(barrier);
    copy_barriers_ready();
  }
  block_barrier();
  for (int part = 0; part < 2; ++part) {
    if (t == 0) {
      if (part == 0) bulk_prefetch(in0 + (i - t) + 64, 256);
      bulk_copy(shared_memory() + 256, in0 + (i - t) + 64 * part, 256, barrier);
    }
    copy_barrier_wait(barrier, static_cast<u32>(part));
    if (t / 64 == part) out[i] = landed[63 - t % 64] ^ in1[i];
    block_barrier();
  }
}
// 128 bytes at a time through one place, in two copies that are announced together: each is asked
// for when all warps have handed the place back.
LATHE_OP isa_hand_over(const u32* in0, const u32* in1, const u32*, u32* out, int threads) {
  u64* full = reinterpret_cast<u64*>(shared_memory());
  u64* empty = full + 1;
  const u32* landed = reinterpret_cast<const u32*>(shared_memory() + 256);
  const int i = isa_index(threads), t = thread_index();
  if (t == 0) {
    copy_barrier_init(full);
    hand_over_init(empty, static_cast<u32>(threads / kWarp));
    copy_barriers_ready();
  }
  block_barrier();
  for (int part = 0; part < threads / kWarp; ++part) {
    const u32 parity = static_cast<u32>(part) & 1u;
    if (t == 0) {
      copy_barrier_wait(empty, parity ^ 1u);
      announce_copies(full, 128);
      for (int half = 0; half < 2; ++half)
        bulk_copy_part(shared_memory() + 256 + 64 * half, in0 + (i - t) + 32 * part + 16 * half, 64,
                       full);
    }
    copy_barrier_wait(full, parity);
    if (t / kWarp == part) out[i] = landed[31 - t % 32] ^ in1[i];
    warp_barrier();
    if (lane_index() == 0) hand_over_arrive(empty);
  }
}
// Without a launch before that lets this one start early, neither does anything.
LATHE_OP isa_dependents(const u32* in0, const u32*, const u32*, u32* out, int threads) {
  allow_dependents();
  wait_for_predecessor();
  const int i = isa_index(threads);
  out[i] = in0[i];
}

LATHE_OP isa_sine(const u32* in0, const u32*, const u32*, u32* out, int threads) {
  const int i = isa_index(threads);
  f32 sine, cosine;
  sine_cosine(static_cast<f32>(static_cast<i32>(in0[i])) * 2.3283064e-10f, sine, cosine);
  out[i] = as_u32(sine) ^ as_u32(cosine) << 1;
}

LATHE_OP isa_turns(const u32* in0, const u32* in1, const u32* in2, u32* out, int threads) {
  const int i = isa_index(threads);
  const f32 high = as_f32(0x3e000000u | in1[i] >> 9), low = as_f32(0x31000000u | in2[i] >> 9);
  out[i] = as_u32(turns_at(static_cast<int>(in0[i] >> 12), high, low));
}

}  // namespace lathe::dev

// clang-format off
#define LATHE_ISA_OPS(X) \
  X(fma) X(divide) X(square_root) X(round_even) X(f16_to_f32) X(f32_to_f16) X(byte_permute) \
  X(masked_or) X(funnel_right) X(shuffle) X(shuffle_f32) X(shuffle_xor) X(shuffle_xor_f32) X(warp_sum) \
  X(warp_max) X(indices) X(add_multiply) X(integer_to_f32) X(exponential) X(silu) X(gelu_tanh) X(gelu_erf) \
  X(stream) X(shared_line) X(block_barrier) X(warp_barrier) X(sine) X(turns) X(ballot) X(pinned) X(uniform) X(elected) X(dot4) X(mma_u8_k32) \
  X(mma_s8_k32) X(mma_u8_k16) X(mma_f16_k16) X(mma_bf16_k16) X(store_to_host) X(relaxed_u32) X(relaxed_u64) X(relaxed_u32x4) X(atomic_add) \
  X(atomic_sum) X(bulk_copy) X(hand_over) X(dependents) \
  X(load_columns) X(load_transposed) X(copy_async) X(half2) X(half2_add) X(half2_multiply) X(half2_fma) \
  X(mma_e4m3_k32) X(e4m3_pair) X(fma_f64) X(shuffle_xor_f64) X(warp_sum_f64) X(mma_f64_k4) X(stream_f64x2)
// clang-format on
