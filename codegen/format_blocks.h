// Owns the declarations of the CPU's block codecs; format.cpp makes the table of them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lathe {

#define LATHE_FORMAT_CODEC(name)                                                \
  void unpack_##name(const std::byte* blocks, std::int64_t values, float* out); \
  void pack_##name(const float* in, std::int64_t values, std::byte* blocks);

LATHE_FORMAT_CODEC(f32)
LATHE_FORMAT_CODEC(f16)
LATHE_FORMAT_CODEC(bf16)
LATHE_FORMAT_CODEC(q4_0)
LATHE_FORMAT_CODEC(q4_1)
LATHE_FORMAT_CODEC(q5_0)
LATHE_FORMAT_CODEC(q5_1)
LATHE_FORMAT_CODEC(q8_0)
LATHE_FORMAT_CODEC(q4_k)
LATHE_FORMAT_CODEC(q5_k)
LATHE_FORMAT_CODEC(q6_k)
LATHE_FORMAT_CODEC(q2_k)
LATHE_FORMAT_CODEC(q3_k)
LATHE_FORMAT_CODEC(iq4_nl)
LATHE_FORMAT_CODEC(iq4_xs)
LATHE_FORMAT_CODEC(mxfp4)
LATHE_FORMAT_CODEC(q8_1)
LATHE_FORMAT_CODEC(q8_1_tail)
LATHE_FORMAT_CODEC(q8_k)
LATHE_FORMAT_CODEC(q4_k_soa)
LATHE_FORMAT_CODEC(fp8_e4m3)
LATHE_FORMAT_CODEC(ternary)
LATHE_FORMAT_CODEC(f64)

#undef LATHE_FORMAT_CODEC

}  // namespace lathe
