// Owns what the rows of fused attention share: a head's norm and rotation, its rows of the KV
// cache, how blocks divide heads and positions.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "codegen/kernels/rows.h"
#include "lathe/codegen/kernel_key.h"
#include "lathe/codegen/kernel_table.h"
#include "lathe/codegen/result.h"
#include "ptx_templates/ops/launch_shapes.h"

namespace lathe {

// Bytes of one value in the cache, scales apart.
int kv_value_bytes(const KernelKey& key);

using HeadValues = std::array<double, 256>;

// Norm (with weights) and rotation of one head of q or k at a position.
HeadValues turned(const KernelKey& key, int position, const float* frequencies, const float* x,
                  const float* norm);

// One head's row of a cache: its values, and for q8_0 the scales behind those of all heads.
struct CacheRow {
  std::byte* values;
  std::byte* scales;
};
CacheRow cache_row(const KernelKey& key, std::byte* cache, int position, int kv_head);

// Through the format's own blocks, so that all agree on what a block of 32 values is.
void load_cached(const KernelKey& key, const CacheRow& from, float* out);
void store_cached(const KernelKey& key, const float* in, const CacheRow& to);

// Where a position is, counted in positions. `pages`: null where they are one after the other.
inline std::int64_t place_of(const std::int32_t* pages, int position) {
  return pages ? row_in_pages(pages, position) : position;
}

// Of one sequence, or of all.
struct Caches {
  std::byte *keys = nullptr, *values = nullptr;
  const std::int32_t* pages = nullptr;  // as of place_of()

  int place(int position) const { return static_cast<int>(place_of(pages, position)); }
};
// The parameters of the caches that an op reads or writes: the pages where there are such, keys,
// values. The same of its arguments, from `next` on, which is then behind them.
void add_caches(const KernelKey& key, Access access, std::vector<Param>& params);
Caches take_caches(const KernelKey& key, std::span<void* const> arguments, std::size_t& next);
// The same from where a sequence's position 0 is: a row, or an entry of the table of pages.
Caches from_row(const KernelKey& key, const Caches& caches, int row);
// Rotates and norms the key at `k`, and puts it and the value behind all keys into the cache.
void append_cached(const KernelKey& key, int position, const float* frequencies, const float* k,
                   const float* norm, const Caches& caches, int kv_head);
// What a query gets of the positions up to `position` that its window lets it see.
HeadValues attended(const KernelKey& key, int position, const HeadValues& query, double scale,
                    const Caches& caches, int kv_head);
// The same of all heads of a token, whose queries have their scale, as operands of matmul.
void attend_token(const KernelKey& key, int position, const std::uint16_t* queries,
                  const Caches& caches, const OperandRows& y, int token);

// The format of the cache and the shape of the heads, as all fused attention takes them; `unit`:
// what head_dim is a multiple of, where the cache's format asks for no more.
Result<void> check_heads(const KernelKey& key, int unit);
// What turned() and the scale of queries are made of.
Result<void> check_turn(const KernelKey& key);

// Whether the key's scores and values can be products of matrix units, where it says so.
Result<void> check_matrix(const KernelKey& key);

// Where blocks take splits of the positions of one KV head (ops/attend.h).
dev::AttendShape attend_shape(const KernelKey& key);
Result<void> check_splits(const KernelKey& key);
// What the splits of so many tokens meet in: partial, counters.
std::vector<Param> merge_params(const KernelKey& key, int tokens);

}  // namespace lathe
