// Owns what the rows of fused attention share.
#include "codegen/kernels/cached_rows.h"

#include <numbers>
#include <vector>

#include "codegen/kernels/rows.h"
#include "ptx_templates/ops/attend_shapes.h"

namespace lathe {

int kv_value_bytes(const KernelKey& key) {
  return key.format == Format::q8_0 ? 1 : row(key.format).bytes;
}

HeadValues turned(const KernelKey& key, int position, const float* frequencies, const float* x,
                  const float* norm) {
  HeadValues out{};
  double squares = 0;
  for (int e = 0; e < key.head_dim; ++e) {
    out[static_cast<std::size_t>(e)] = received(x[e]);
    squares += received(x[e]) * received(x[e]);
  }
  if (norm) {
    const double factor = 1 / std::sqrt(squares / key.head_dim + key.epsilon);
    for (int e = 0; e < key.head_dim; ++e) out[static_cast<std::size_t>(e)] *= factor * norm[e];
  }
  const bool halves = key.pairing == Pairing::halves;
  for (int pair = 0; pair < key.rotary / 2; ++pair) {
    const double turns =
        position * (static_cast<double>(frequencies[2 * pair]) + frequencies[2 * pair + 1]);
    const double angle = 2 * std::numbers::pi * (turns - std::nearbyint(turns));
    const auto first = static_cast<std::size_t>(halves ? pair : 2 * pair);
    const std::size_t second = first + static_cast<std::size_t>(halves ? key.rotary / 2 : 1);
    const double va = out[first], vb = out[second];
    out[first] = va * std::cos(angle) - vb * std::sin(angle);
    out[second] = va * std::sin(angle) + vb * std::cos(angle);
  }
  return out;
}

CacheRow cache_row(const KernelKey& key, std::byte* cache, int position, int kv_head) {
  const std::int64_t width = std::int64_t{key.kv_heads} * key.head_dim;
  std::byte* at = cache + position * kv_position_bytes(key.format, width);
  return {at + std::int64_t{kv_head} * key.head_dim * kv_value_bytes(key),
          at + width + kv_head * (key.head_dim / 32) * 2};
}

void load_cached(const KernelKey& key, const CacheRow& from, float* out) {
  if (key.format != Format::q8_0) return row(key.format).unpack(from.values, key.head_dim, out);
  for (int b = 0; b < key.head_dim / 32; ++b) {
    std::byte block[34];
    std::memcpy(block, from.scales + 2 * b, 2);
    std::memcpy(block + 2, from.values + 32 * b, 32);
    row(key.format).unpack(block, 32, out + 32 * b);
  }
}

void store_cached(const KernelKey& key, const float* in, const CacheRow& to) {
  if (key.format != Format::q8_0) return row(key.format).pack(in, key.head_dim, to.values);
  for (int b = 0; b < key.head_dim / 32; ++b) {
    std::byte block[34];
    row(key.format).pack(in + 32 * b, 32, block);
    std::memcpy(to.scales + 2 * b, block, 2);
    std::memcpy(to.values + 32 * b, block + 2, 32);
  }
}

void add_caches(const KernelKey& key, Access access, std::vector<Param>& params) {
  if (key.paged) params.push_back(pages_in());
  params.push_back(cache("k_cache", key, access));
  params.push_back(cache("v_cache", key, access));
}

Caches take_caches(const KernelKey& key, std::span<void* const> arguments, std::size_t& next) {
  Caches caches;
  if (key.paged) caches.pages = static_cast<const std::int32_t*>(arguments[next++]);
  caches.keys = static_cast<std::byte*>(arguments[next++]);
  caches.values = static_cast<std::byte*>(arguments[next++]);
  return caches;
}

Caches from_row(const KernelKey& key, const Caches& caches, int row) {
  if (caches.pages) return {caches.keys, caches.values, caches.pages + row};
  const CacheRow keys = cache_row(key, caches.keys, row, 0);
  return {keys.values, cache_row(key, caches.values, row, 0).values};
}

void append_cached(const KernelKey& key, int position, const float* frequencies, const float* k,
                   const float* norm, const Caches& caches, int kv_head) {
  const int d = key.head_dim;
  const HeadValues turned_key = turned(key, position, frequencies, k, norm);
  float values[256];
  for (int e = 0; e < d; ++e)
    values[e] = static_cast<float>(turned_key[static_cast<std::size_t>(e)]);
  store_cached(key, values, cache_row(key, caches.keys, caches.place(position), kv_head));
  for (int e = 0; e < d; ++e) values[e] = static_cast<float>(received(k[key.kv_heads * d + e]));
  store_cached(key, values, cache_row(key, caches.values, caches.place(position), kv_head));
}

HeadValues attended(const KernelKey& key, int position, const HeadValues& query, double scale,
                    const Caches& caches, int kv_head) {
  const auto d = static_cast<std::size_t>(key.head_dim);
  const int first = key.window > 0 ? std::max(0, position - key.window + 1) : 0;
  std::vector<double> scores;
  float values[256];
  double maximum = -3.0e38, total = 0;
  for (int p = first; p <= position; ++p) {
    load_cached(key, cache_row(key, caches.keys, caches.place(p), kv_head), values);
    double dot = 0;
    for (std::size_t e = 0; e < d; ++e) dot += query[e] * values[e];
    scores.push_back(dot * scale);
    maximum = std::max(maximum, scores.back());
  }
  HeadValues out{};
  for (int p = first; p <= position; ++p) {
    const double weight = std::exp(scores[static_cast<std::size_t>(p - first)] - maximum);
    total += weight;
    load_cached(key, cache_row(key, caches.values, caches.place(p), kv_head), values);
    for (std::size_t e = 0; e < d; ++e) out[e] += weight * values[e];
  }
  for (std::size_t e = 0; e < d; ++e) out[e] /= total;
  return out;
}

void attend_token(const KernelKey& key, int position, const std::uint16_t* queries,
                  const Caches& caches, const OperandRows& y, int token) {
  const int d = key.head_dim, all = key.heads * d;
  for (int head = 0; head < key.heads; ++head) {
    HeadValues query{};
    for (int e = 0; e < d; ++e)
      query[static_cast<std::size_t>(e)] = static_cast<double>(f16_to_f32(queries[head * d + e]));
    const HeadValues result =
        attended(key, position, query, 1, caches, head / (key.heads / key.kv_heads));
    for (int e = 0; e < d; ++e) y.set(token, head * d + e, result[static_cast<std::size_t>(e)]);
  }
  for (int i = all; i < y.width; ++i) y.set(token, i, 0);
  y.set_means(token);
}

Result<void> check_matrix(const KernelKey& key) {
  if (!key.matrix) return {};
  if (key.format != Format::f16)
    return invalid("matrix is for a KV cache of f16; it is {}", row(key.format).name);
  if (key.head_dim > dev::kMatrixHeadDim)
    return invalid("head_dim is {}; with matrix it is at most {}", key.head_dim,
                   int{dev::kMatrixHeadDim});
  if (key.heads / key.kv_heads > dev::kMatrixHeads)
    return invalid("heads is {}; with matrix it is at most {} times kv_heads ({})", key.heads,
                   int{dev::kMatrixHeads}, key.kv_heads);
  if (key.warps > dev::kMatrixWarps)
    return invalid("warps is {}; with matrix it is at most {}, for more have too few registers",
                   key.warps, int{dev::kMatrixWarps});
  return {};
}

Result<void> check_heads(const KernelKey& key, int unit) {
  LATHE_TRY(in_range("kv_heads", key.kv_heads, 1, 1024));
  LATHE_TRY(in_range("heads", key.heads, key.kv_heads, 1024));
  LATHE_TRY(in_range("head_dim", key.head_dim, 32, 256));
  if (key.heads % key.kv_heads || key.heads / key.kv_heads > 16)
    return invalid("heads is {}; it must be 1 to 16 times kv_heads ({})", key.heads, key.kv_heads);
  if (key.format == Format::q8_0) unit = 32;
  if (key.head_dim % unit)
    return invalid("head_dim is {}; with a KV cache of {} it must be a multiple of {}",
                   key.head_dim, row(key.format).name, unit);
  return {};
}

Result<void> check_turn(const KernelKey& key) {
  LATHE_TRY(in_range("rotary", key.rotary, 2, key.head_dim));
  if (key.rotary % 2)
    return invalid("rotary is {}; values rotate in pairs, so it must be even", key.rotary);
  LATHE_TRY(check_epsilon(key));
  return {};
}

dev::AttendShape attend_shape(const KernelKey& key) {
  if (key.matrix) return dev::attend_matrix_shape(key.heads, key.kv_heads, key.head_dim);
  return dev::attend_shape(key.heads, key.kv_heads, key.head_dim, kv_value_bytes(key));
}

Result<void> check_splits(const KernelKey& key) {
  LATHE_TRY(in_range("window", key.window, 0, 1 << 30));
  LATHE_TRY(in_range("splits", key.splits, 1, dev::kAttendMaxSplits));
  LATHE_TRY(in_range("warps", key.warps, 1, 16));
  if (const int teams = attend_shape(key).teams; key.warps % teams)
    return invalid(
        "warps is {}; for {} query heads of {} values per KV head it must be a multiple "
        "of {}",
        key.warps, key.heads / key.kv_heads, key.head_dim, teams);
  return {};
}

std::vector<Param> merge_params(const KernelKey& key, int tokens) {
  const std::int64_t heads = std::int64_t{tokens} * key.kv_heads;
  const int floats = dev::attend_partial_floats(key.heads / key.kv_heads, key.head_dim);
  std::vector<Param> out = {vector_out("partial", heads * key.splits * floats),
                            {"counters", Access::read_write, Element::i32, heads * 4, 4}};
  out[0].scratch = true;
  return out;
}

}  // namespace lathe
