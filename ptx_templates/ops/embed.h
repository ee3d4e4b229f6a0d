// Owns y[k] = scale * table[token]: one row of the embedding matrix by token id.
#pragma once

#include "ops/exchange.h"
#include "ops/formats.h"

namespace lathe::dev {

// The row to read: an id outside the table (a sequence that has no next token) reads row 0.
LATHE_DEVICE i64 embed_row(const i32* token, int n) {
  const i32 id = *token;
  return id >= 0 && id < n ? id : 0;
}

// Thread `index` of all gives its values to store(place, value): 32 of a table of blocks, one of
// numbers.
template <class Decoder, class Store>
LATHE_DEVICE void embed_blocks(const u8* table, const i32* token, int index, int k, int n,
                               f32 scale, Store store) {
  const int unit = index;
  if (unit >= k / 32) return;
  const int block = unit / Decoder::units, part = unit % Decoder::units;
  const i64 row_bytes = static_cast<i64>(k / Decoder::block) * Decoder::bytes;
  Unit u;
  Decoder::decode(
      table + embed_row(token, n) * row_bytes + static_cast<i64>(block) * Decoder::bytes, part, u);
  LATHE_UNROLL(2)
  for (int r = 0; r < 2; ++r) {
    const int at = block * Decoder::block + Decoder::run(part, r);
    LATHE_UNROLL(16)
    for (int j = 0; j < 16; ++j) store(at + j, scale * unit_value<Decoder>(u, r, j));
  }
}

template <class Decoder, class Store>
LATHE_DEVICE void embed_values(const u8* table, const i32* token, int index, int k, int n,
                               f32 scale, Store store) {
  if (index >= k) return;
  const i64 row_bytes = static_cast<i64>(k) * Decoder::bytes;
  store(index, scale * Decoder::value(table + embed_row(token, n) * row_bytes, index));
}

// For each format its kernel, with a row of blocks for each token of a chunk, and the share of one
// thread in a persistent kernel.
#define LATHE_EMBED_OP(name, body, Decoder)                                                      \
  LATHE_OP name(const u8* table, const i32* token, f32* y, int k, int n, int warps, f32 scale) { \
    f32* row = y + static_cast<i64>(block_y()) * k;                                              \
    body<Decoder>(table, token + block_y(), block_x() * warps * kWarp + thread_index(), k, n,    \
                  scale, [=](int at, f32 value) { row[at] = value; });                           \
  }                                                                                              \
  template <int = 0>                                                                             \
  LATHE_DEVICE void name##_share(const Exchange& e, const u8* table, const i32* token, f32* y,   \
                                 int index, int k, int n, f32 scale) {                           \
    body<Decoder>(table, token, index, k, n, scale,                                              \
                  [=](int at, f32 value) { send(e, y + at, value); });                           \
  }

LATHE_EMBED_OP(embed_f32, embed_values, F32)
LATHE_EMBED_OP(embed_f16, embed_values, F16)
LATHE_EMBED_OP(embed_bf16, embed_values, BF16)
LATHE_EMBED_OP(embed_q4_0, embed_blocks, Q4_0)
LATHE_EMBED_OP(embed_q4_1, embed_blocks, Q4_1)
LATHE_EMBED_OP(embed_q5_0, embed_blocks, Q5_0)
LATHE_EMBED_OP(embed_q5_1, embed_blocks, Q5_1)
LATHE_EMBED_OP(embed_q8_0, embed_blocks, Q8_0)
LATHE_EMBED_OP(embed_q4_k, embed_blocks, Q4_K)
LATHE_EMBED_OP(embed_q5_k, embed_blocks, Q5_K)
LATHE_EMBED_OP(embed_q6_k, embed_blocks, Q6_K)
LATHE_EMBED_OP(embed_q2_k, embed_blocks, Q2_K)
LATHE_EMBED_OP(embed_q3_k, embed_blocks, Q3_K)
LATHE_EMBED_OP(embed_iq4_nl, embed_blocks, IQ4_NL)
LATHE_EMBED_OP(embed_iq4_xs, embed_blocks, IQ4_XS)
LATHE_EMBED_OP(embed_mxfp4, embed_blocks, MXFP4)
LATHE_EMBED_OP(embed_q8_1, embed_blocks, Q8_1)
LATHE_EMBED_OP(embed_q8_1_tail, embed_blocks, Q8_1_Tail)
LATHE_EMBED_OP(embed_q8_k, embed_blocks, Q8_K)
LATHE_EMBED_OP(embed_q4_k_soa, embed_blocks, Q4_K_SoA)
LATHE_EMBED_OP(embed_fp8_e4m3, embed_values, FP8_E4M3)
LATHE_EMBED_OP(embed_ternary, embed_blocks, Ternary)
LATHE_EMBED_OP(embed_f64, embed_values, F64)

}  // namespace lathe::dev
