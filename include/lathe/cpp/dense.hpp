// Owns the C++ face of dense products and of the cache of their weights. The comments of
// lathe/c/dense.h hold. What a span does not have room for is refused before the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/lathe.hpp"

namespace lathe::api {
inline namespace v0 {

inline Result<std::uint64_t> weight_fingerprint(std::span<const std::byte> raw, std::uint64_t n_in,
                                                std::uint64_t n_out) {
  std::uint64_t fingerprint = 0;
  const lathe_status status =
      lathe_weight_fingerprint(raw.data(), raw.size(), n_in, n_out, &fingerprint);
  return result_of(status, fingerprint);
}

inline Result<lathe_dense_key> dense_key(std::span<const std::byte> raw, std::string_view format,
                                         std::int32_t n_in, std::int32_t n_out) {
  lathe_dense_key key = {};
  const lathe_status status =
      lathe_dense_key_make(raw.data(), raw.size(), std::string(format).c_str(), n_in, n_out, &key);
  return result_of(status, key);
}

struct DenseSource {
  lathe_dense_key key;
  std::span<const std::byte> raw;  // key.bytes of them
};

namespace dense {

// Ok where `given` are the `rows` x `values` that a call takes; more are allowed. What is not above
// 0 is the library's to refuse.
inline Result<void> check(const char* what, std::size_t given, std::int32_t rows,
                          std::int32_t values) {
  if (rows < 1 || values < 1 || given / std::size_t(values) >= std::size_t(rows)) return {};
  const std::string message = std::string(what) + " are " + std::to_string(given) + ", not " +
                              std::to_string(rows) + " rows of " + std::to_string(values) + ".";
  return Error{LATHE_INVALID_ARGUMENT, 0, message, message};
}

inline Result<void> check_raw(const lathe_dense_key& key, std::span<const std::byte> raw) {
  if (std::int64_t(raw.size()) == key.bytes) return {};
  const std::string message = "The key is of " + std::to_string(key.bytes) + " bytes, and " +
                              std::to_string(raw.size()) + " are given.";
  return Error{LATHE_INVALID_ARGUMENT, 0, message, message};
}

}  // namespace dense

class DenseCache : public Handle<lathe_dense_cache, lathe_dense_cache_close> {
 public:
  static Result<DenseCache> open() {
    lathe_dense_cache* cache = nullptr;
    if (lathe_dense_cache_open(&cache) != LATHE_OK) return last_error();
    return DenseCache(cache);
  }
  Result<void> put(const lathe_dense_key& key, std::span<const float> values) {
    return result_of(lathe_dense_cache_put(get(), &key, values.data(), std::ssize(values)));
  }
  Result<void> expand(const lathe_dense_key& key, std::span<const std::byte> raw) {
    if (auto sound = dense::check_raw(key, raw); !sound) return sound;
    return result_of(lathe_dense_cache_expand(get(), &key, raw.data()));
  }
  Result<void> read(const lathe_dense_key& key, std::span<float> values) {
    return result_of(lathe_dense_cache_read(get(), &key, values.data(), std::ssize(values)));
  }
  Result<bool> contains(const lathe_dense_key& key) const {
    std::int32_t contained = 0;
    const lathe_status status = lathe_dense_cache_contains(get(), &key, &contained);
    return result_of(status, contained != 0);
  }
  Result<std::int32_t> size() const {
    std::int32_t size = 0;
    const lathe_status status = lathe_dense_cache_get_size(get(), &size);
    return result_of(status, size);
  }
  Result<void> clear() { return result_of(lathe_dense_cache_clear(get())); }

 private:
  using Handle::Handle;
};

// Hidden states are `batch` rows of n_in floats, results `batch` rows of n_out.
class DenseProducts : public Handle<lathe_dense, lathe_dense_close> {
 public:
  static Result<DenseProducts> open(const Device& device) {
    return open(device, sized<lathe_dense_options>());
  }
  static Result<DenseProducts> open(const Device& device, const lathe_dense_options& options) {
    lathe_dense* products = nullptr;
    if (lathe_dense_open(device.get(), &options, &products) != LATHE_OK) return last_error();
    return DenseProducts(products);
  }
  Result<lathe_dense_info> info() const {
    auto info = sized<lathe_dense_info>();
    const lathe_status status = lathe_dense_get_info(get(), &info);
    return result_of(status, info);
  }
  Result<void> batch_gemv(std::span<const float> hidden, std::int32_t batch, std::int32_t n_in,
                          std::int32_t n_out, std::span<const float> weight, std::span<float> out) {
    if (auto sound = check_vectors(hidden, batch, n_in, n_out, out); !sound) return sound;
    if (auto sound = dense::check("The values of the weight", weight.size(), n_out, n_in); !sound)
      return sound;
    return result_of(lathe_dense_batch_gemv(get(), hidden.data(), batch, n_in, n_out, weight.data(),
                                            out.data()));
  }
  Result<void> batch_gemv_cached(const lathe_dense_key& key, std::span<const std::byte> raw,
                                 std::span<const float> hidden, std::int32_t batch,
                                 std::span<float> out) {
    if (auto sound = dense::check_raw(key, raw); !sound) return sound;
    return multiply_kept(key, raw.data(), hidden, batch, out);
  }
  // LATHE_NOT_FOUND where the weight is neither resident nor in the cache.
  Result<void> batch_gemv_cached_only(const lathe_dense_key& key, std::span<const float> hidden,
                                      std::int32_t batch, std::span<float> out) {
    return multiply_kept(key, nullptr, hidden, batch, out);
  }
  // How many were not resident before.
  Result<std::int32_t> preload(std::span<const DenseSource> sources) {
    std::vector<lathe_dense_source> wanted;
    for (const auto& [key, raw] : sources) {
      if (const auto sound = dense::check_raw(key, raw); !sound) return sound.error();
      wanted.push_back({key, raw.data()});
    }
    std::int32_t made = 0;
    const lathe_status status =
        lathe_dense_preload(get(), wanted.data(), static_cast<std::int32_t>(wanted.size()), &made);
    return result_of(status, made);
  }
  // False where they were resident before.
  Result<bool> preload_blob(std::uint64_t number, std::span<const std::byte> bytes) {
    std::int32_t made = 0;
    const lathe_status status =
        lathe_dense_preload_blob(get(), number, bytes.data(), bytes.size(), &made);
    return result_of(status, made != 0);
  }
  Result<std::uint64_t> blob_address(std::uint64_t number) const {
    std::uint64_t address = 0;
    const lathe_status status = lathe_dense_get_blob(get(), number, &address);
    return result_of(status, address);
  }
  Result<bool> is_resident(const lathe_dense_key& key) const {
    std::int32_t resident = 0;
    const lathe_status status = lathe_dense_is_resident(get(), &key, &resident);
    return result_of(status, resident != 0);
  }
  Result<void> clear() { return result_of(lathe_dense_clear(get())); }

 private:
  static Result<void> check_vectors(std::span<const float> hidden, std::int32_t batch,
                                    std::int32_t n_in, std::int32_t n_out,
                                    std::span<const float> out) {
    if (auto sound = dense::check("The hidden states' values", hidden.size(), batch, n_in); !sound)
      return sound;
    return dense::check("The places for results", out.size(), batch, n_out);
  }
  Result<void> multiply_kept(const lathe_dense_key& key, const std::byte* raw,
                             std::span<const float> hidden, std::int32_t batch,
                             std::span<float> out) {
    if (auto sound = check_vectors(hidden, batch, key.n_in, key.n_out, out); !sound) return sound;
    return result_of(
        lathe_dense_batch_gemv_cached(get(), &key, raw, hidden.data(), batch, out.data()));
  }
  using Handle::Handle;
};

}  // namespace v0
}  // namespace lathe::api
