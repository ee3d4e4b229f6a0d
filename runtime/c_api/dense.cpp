// Owns the C functions about dense products. The comments of lathe/c/dense.h hold.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/c_api/objects.h"

using namespace lathe;
using namespace lathe::c_api;

namespace {

static_assert(LATHE_PRECISION_FAITHFUL == static_cast<int>(Precision::faithful) &&
              LATHE_PRECISION_HALF == static_cast<int>(Precision::half) &&
              LATHE_PRECISION_BRAIN == static_cast<int>(Precision::brain) &&
              LATHE_PRECISION_EIGHT == static_cast<int>(Precision::eight));

Result<DenseOptions> options_of(const lathe_dense_options& given) {
  DenseOptions options;
  if (given.precision < LATHE_PRECISION_FAITHFUL || given.precision > LATHE_PRECISION_EIGHT)
    return unknown_number("precision", given.precision);
  options.precision = static_cast<Precision>(given.precision);
  if (given.budget_bytes != 0) options.budget_bytes = given.budget_bytes;
  if (given.cache) {
    LATHE_ASSIGN(const DenseCacheObject* object, find<DenseCacheObject>(given.cache));
    options.cache = object->cache;
  }
  return options;
}

Result<DenseWeightKey> key_of(const lathe_dense_key* given) {
  if (!given) return null_argument("key");
  if (given->format < 0 || std::size_t(given->format) >= formats().size())
    return unknown_number("format", given->format);
  return DenseWeightKey{given->digest, given->bytes, static_cast<Format>(given->format),
                        given->n_in, given->n_out};
}

// Of no key the size is none.
std::size_t floats(std::int32_t rows, std::int32_t values) {
  return rows > 0 && values > 0 ? std::size_t(rows) * std::size_t(values) : 0;
}

std::span<const std::byte> bytes_of(const void* bytes, std::size_t count) {
  return {static_cast<const std::byte*>(bytes), count};
}

// Runs the body of a function on open products.
template <typename Body>
lathe_status with_products(const lathe_dense* dense, const Body& body) {
  return guarded([&]() -> Result<void> {
    LATHE_ASSIGN(const DenseObject* object, find<DenseObject>(dense));
    return body(*object->products);
  });
}

// The same of an open cache.
template <typename Body>
lathe_status with_cache(const lathe_dense_cache* cache, const Body& body) {
  return guarded([&]() -> Result<void> {
    LATHE_ASSIGN(const DenseCacheObject* object, find<DenseCacheObject>(cache));
    return body(*object->cache);
  });
}

}  // namespace

lathe_status lathe_weight_fingerprint(const void* raw, std::size_t bytes, std::uint64_t n_in,
                                      std::uint64_t n_out, std::uint64_t* fingerprint) {
  return guarded([&]() -> Result<void> {
    LATHE_NOT_NULL(fingerprint);
    if (bytes > 0) LATHE_NOT_NULL(raw);
    *fingerprint = weight_fingerprint(bytes_of(raw, bytes), n_in, n_out);
    return {};
  });
}

lathe_status lathe_dense_key_make(const void* raw, std::size_t bytes, const char* format,
                                  std::int32_t n_in, std::int32_t n_out, lathe_dense_key* key) {
  return guarded([&]() -> Result<void> {
    LATHE_NOT_NULL(raw);
    LATHE_NOT_NULL(format);
    LATHE_NOT_NULL(key);
    LATHE_ASSIGN(const Format of, format_by_name(format));
    LATHE_ASSIGN(const DenseWeightKey made,
                 dense_weight_key(bytes_of(raw, bytes), of, n_in, n_out));
    *key = {made.digest, made.bytes, static_cast<std::int32_t>(of), n_in, n_out, 0};
    return {};
  });
}

lathe_status lathe_dense_cache_open(lathe_dense_cache** cache) {
  return guarded([&]() -> Result<void> {
    LATHE_NOT_NULL(cache);
    LATHE_ASSIGN(*cache, open_handle(std::make_unique<DenseCacheObject>()));
    return {};
  });
}

lathe_status lathe_dense_cache_close(lathe_dense_cache* cache) {
  return guarded([&] { return close<DenseCacheObject>(cache); });
}

lathe_status lathe_dense_cache_put(lathe_dense_cache* cache, const lathe_dense_key* key,
                                   const float* values, std::int64_t count) {
  return with_cache(cache, [&](DenseWeightCache& weights) -> Result<void> {
    LATHE_ASSIGN(const DenseWeightKey of, key_of(key));
    LATHE_TRY(check_array(values, "values", count));
    return weights.put(of, {values, std::size_t(count)});
  });
}

lathe_status lathe_dense_cache_expand(lathe_dense_cache* cache, const lathe_dense_key* key,
                                      const void* raw) {
  return with_cache(cache, [&](DenseWeightCache& weights) -> Result<void> {
    LATHE_ASSIGN(const DenseWeightKey of, key_of(key));
    LATHE_NOT_NULL(raw);
    LATHE_TRY(weights.expand(of, bytes_of(raw, std::size_t(of.bytes))));
    return {};
  });
}

lathe_status lathe_dense_cache_read(lathe_dense_cache* cache, const lathe_dense_key* key,
                                    float* values, std::int64_t count) {
  return with_cache(cache, [&](DenseWeightCache& weights) -> Result<void> {
    LATHE_ASSIGN(const DenseWeightKey of, key_of(key));
    LATHE_TRY(check_array(values, "values", count));
    LATHE_ASSIGN(const std::shared_ptr<const DenseWeight> weight, weights.get(of));
    const std::span<const float> kept = weight->values.values();
    if (std::cmp_not_equal(count, kept.size()))
      return Error{Code::invalid_argument,
                   fmt::format("A dense weight of {} rows of {} values has room for {} of them.",
                               of.n_out, of.n_in, count),
                   {}};
    std::ranges::copy(kept, values);
    return {};
  });
}

lathe_status lathe_dense_cache_contains(const lathe_dense_cache* cache, const lathe_dense_key* key,
                                        std::int32_t* contained) {
  return with_cache(cache, [&](DenseWeightCache& weights) -> Result<void> {
    LATHE_NOT_NULL(contained);
    LATHE_ASSIGN(const DenseWeightKey of, key_of(key));
    *contained = weights.contains(of) ? 1 : 0;
    return {};
  });
}

lathe_status lathe_dense_cache_get_size(const lathe_dense_cache* cache, std::int32_t* size) {
  return with_cache(cache, [&](DenseWeightCache& weights) -> Result<void> {
    LATHE_NOT_NULL(size);
    *size = std::int32_t(weights.size());
    return {};
  });
}

lathe_status lathe_dense_cache_clear(lathe_dense_cache* cache) {
  return with_cache(cache, [](DenseWeightCache& weights) -> Result<void> {
    weights.clear();
    return {};
  });
}

lathe_status lathe_dense_open(lathe_device* device, const lathe_dense_options* options,
                              lathe_dense** dense) {
  return guarded([&]() -> Result<void> {
    LATHE_NOT_NULL(dense);
    LATHE_ASSIGN(const DeviceObject* of, find<DeviceObject>(device));
    LATHE_ASSIGN(const auto given, read_optional_struct(options, "lathe_dense_options"));
    LATHE_ASSIGN(const DenseOptions wanted, options_of(given));
    auto object = std::make_unique<DenseObject>();
    LATHE_ASSIGN(object->products, DenseProducts::open(of->device, wanted));
    LATHE_ASSIGN(*dense, open_handle(std::move(object)));
    return {};
  });
}

lathe_status lathe_dense_close(lathe_dense* dense) {
  return guarded([&] { return close<DenseObject>(dense); });
}

lathe_status lathe_dense_get_info(const lathe_dense* dense, lathe_dense_info* info) {
  return with_products(dense, [&](DenseProducts& products) {
    const DenseCounts counts = products.counts();
    return write_struct({.struct_size = 0,
                         .weights = counts.weights,
                         .blobs = counts.blobs,
                         .bytes = counts.bytes,
                         .budget_bytes = counts.budget_bytes,
                         .products = counts.products,
                         .uploads = counts.uploads,
                         .upload_bytes = counts.upload_bytes,
                         .cached = std::int64_t(products.cache().size())},
                        info, "lathe_dense_info");
  });
}

lathe_status lathe_dense_batch_gemv(lathe_dense* dense, const float* hidden, std::int32_t batch,
                                    std::int32_t n_in, std::int32_t n_out, const float* weight,
                                    float* out) {
  return with_products(dense, [&](DenseProducts& products) -> Result<void> {
    LATHE_NOT_NULL(hidden);
    LATHE_NOT_NULL(weight);
    LATHE_NOT_NULL(out);
    return products.batch_gemv({hidden, floats(batch, n_in)}, batch, n_in, n_out,
                               {weight, floats(n_out, n_in)}, {out, floats(batch, n_out)});
  });
}

lathe_status lathe_dense_batch_gemv_cached(lathe_dense* dense, const lathe_dense_key* key,
                                           const void* raw, const float* hidden, std::int32_t batch,
                                           float* out) {
  return with_products(dense, [&](DenseProducts& products) -> Result<void> {
    LATHE_ASSIGN(const DenseWeightKey of, key_of(key));
    LATHE_NOT_NULL(hidden);
    LATHE_NOT_NULL(out);
    const std::span vectors(hidden, floats(batch, of.n_in));
    const std::span results(out, floats(batch, of.n_out));
    if (!raw) return products.batch_gemv_cached_only(of, vectors, batch, results);
    return products.batch_gemv_cached(of, bytes_of(raw, std::size_t(of.bytes)), vectors, batch,
                                      results);
  });
}

lathe_status lathe_dense_preload(lathe_dense* dense, const lathe_dense_source* sources,
                                 std::int32_t source_count, std::int32_t* made) {
  return with_products(dense, [&](DenseProducts& products) -> Result<void> {
    LATHE_NOT_NULL(made);
    LATHE_TRY(check_array(sources, "sources", source_count));
    std::vector<DenseSource> wanted;
    for (std::int32_t i = 0; i < source_count; ++i) {
      LATHE_ASSIGN(const DenseWeightKey key, key_of(&sources[i].key));
      if (!sources[i].raw) return null_argument("lathe_dense_source.raw");
      wanted.push_back({key, bytes_of(sources[i].raw, std::size_t(key.bytes))});
    }
    LATHE_ASSIGN(*made, products.preload(wanted));
    return {};
  });
}

lathe_status lathe_dense_preload_blob(lathe_dense* dense, std::uint64_t number, const void* bytes,
                                      std::size_t size, std::int32_t* made) {
  return with_products(dense, [&](DenseProducts& products) -> Result<void> {
    LATHE_NOT_NULL(bytes);
    LATHE_NOT_NULL(made);
    LATHE_ASSIGN(const bool fresh, products.preload_blob(number, bytes_of(bytes, size)));
    *made = fresh ? 1 : 0;
    return {};
  });
}

lathe_status lathe_dense_get_blob(const lathe_dense* dense, std::uint64_t number,
                                  std::uint64_t* address) {
  return with_products(dense, [&](DenseProducts& products) -> Result<void> {
    LATHE_NOT_NULL(address);
    LATHE_ASSIGN(*address, products.blob_address(number));
    return {};
  });
}

lathe_status lathe_dense_is_resident(const lathe_dense* dense, const lathe_dense_key* key,
                                     std::int32_t* resident) {
  return with_products(dense, [&](DenseProducts& products) -> Result<void> {
    LATHE_NOT_NULL(resident);
    LATHE_ASSIGN(const DenseWeightKey of, key_of(key));
    *resident = products.is_resident(of) ? 1 : 0;
    return {};
  });
}

lathe_status lathe_dense_clear(lathe_dense* dense) {
  return with_products(dense, [](DenseProducts& products) -> Result<void> {
    products.clear();
    return {};
  });
}
