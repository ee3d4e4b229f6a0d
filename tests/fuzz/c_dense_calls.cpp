// Owns the fuzzer's calls about dense products, the cache of their weights and the keys of those.
#include <algorithm>
#include <cstring>
#include <limits>

#include "tests/fuzz/c_caller.h"

namespace lathe::fuzz {
namespace {

constexpr int kMostFloats = 1024;  // of a matrix
constexpr int kMostBatch = 8;
constexpr int kLimit = std::numeric_limits<std::int32_t>::max();

// Numbers for weights and vectors: the memory begins at one of a few places, so that keys repeat.
const float* numbers(Caller& c) {
  static const auto all = [] {
    std::array<float, kMostFloats * kMostBatch + 64> made;
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = float(i * 37 % 64) / 16 - 2;
    return made;
  }();
  return all.data() + c.one_of(4);
}

// A size that there is memory for, or one that is refused.
std::int32_t size(Caller& c, int most) {
  constexpr std::int32_t kRefused[] = {0, -1, kLimit, -kLimit - 1};
  return c.rarely() ? kRefused[c.one_of(4)] : 1 + c.one_of(most);
}

// One that was made before, a new one as the contract says, or one of anything.
Caller::Weight some_weight(Caller& c) {
  const int how = c.one_of(8);
  if (how < 5 && !c.weights.empty())
    return c.weights[c.input.ConsumeIntegralInRange<std::size_t>(0, c.weights.size() - 1)];
  Caller::Weight made = {{}, numbers(c)};
  lathe_dense_key& key = made.key;
  const bool blocks = c.one_of(4) == 0;
  const std::int32_t n_in = blocks ? 32 : 1 + c.one_of(16), n_out = 1 + c.one_of(8);
  const std::size_t bytes = std::size_t(n_out) * (blocks ? 34 : 4 * std::size_t(n_in));
  const char* format = blocks ? "q8_0" : "f32";
  if (how < 7) {
    Caller::seen(lathe_dense_key_make(made.from, bytes, format, n_in, n_out, &key));
    return c.weights.emplace_back(made);
  }
  Caller::seen(lathe_dense_key_make(
      c.rarely() ? nullptr : made.from, c.one_of(2) ? bytes : std::size_t(c.one_of(kMostFloats)),
      c.one_of(4) ? format : c.text("bf16"), size(c, 16), n_out, c.place(key)));
  if (c.one_of(4) == 0) key.digest = c.input.ConsumeIntegral<std::uint64_t>();
  if (c.one_of(4) == 0) key.bytes = c.number(-1, kMostFloats);
  if (c.one_of(4) == 0) key.format = c.number(-1, 30);
  if (c.one_of(4) == 0) key.n_in = size(c, 16);
  if (c.one_of(4) == 0) key.n_out = size(c, 8);
  return made;
}
// As many bytes as the key says, or null.
const void* raw_of(Caller& c, const Caller::Weight& weight) {
  if (weight.key.bytes > std::int64_t{kMostFloats} * 4) return nullptr;
  auto* const raw = c.room<std::byte>(weight.key.bytes);
  if (raw) std::memcpy(raw, weight.from, std::size_t(weight.key.bytes));
  return raw;
}
// Room for as many floats, with numbers in them. Of sizes that are refused: for none, but not null.
float* floats(Caller& c, std::int32_t rows, std::int32_t values) {
  const std::int64_t count = std::int64_t{rows} * values;
  if (rows < 1 || values < 1 || count > kMostFloats * kMostBatch) {
    static float nothing = 0;
    return &nothing;
  }
  auto* const made = c.room<float>(count);
  if (made) std::copy_n(numbers(c), count, made);
  return made;
}

void cache_call(Caller& c) {
  const Caller::Weight weight = some_weight(c);
  const lathe_dense_key& key = weight.key;
  const lathe_dense_key* of = c.rarely() ? nullptr : &key;
  auto* cache = c.any<lathe_dense_cache>();
  const std::int64_t all = std::int64_t{key.n_in} * key.n_out;
  // As many as there are, or a few more or less.
  std::int64_t count = std::clamp<std::int64_t>(all, 0, kMostFloats);
  if (c.one_of(2)) count = std::clamp<std::int64_t>(count + c.one_of(9) - 4, -1, kMostFloats);
  std::int32_t word = 0;
  switch (c.one_of(7)) {
    case 0:
      return c.open<lathe_dense_cache>(lathe_dense_cache_open);
    case 1:
      return Caller::seen(lathe_dense_cache_put(
          cache, of, count > 0 ? floats(c, 1, std::int32_t(count)) : nullptr, count));
    case 2:
      return Caller::seen(lathe_dense_cache_expand(cache, of, raw_of(c, weight)));
    case 3:
      return Caller::seen(lathe_dense_cache_read(cache, of, c.room<float>(count), count));
    case 4:
      return Caller::seen(lathe_dense_cache_contains(cache, of, c.place(word)));
    case 5: {
      const lathe_status status = lathe_dense_cache_get_size(cache, c.place(word));
      require(word >= 0 && word <= 24);
      return Caller::seen(status);
    }
    default:
      return Caller::seen(lathe_dense_cache_clear(cache));
  }
}

void multiply(Caller& c) {
  const std::int32_t batch = size(c, kMostBatch);
  if (c.one_of(2)) {
    const std::int32_t n_in = size(c, 16), n_out = size(c, 8);
    return Caller::seen(lathe_dense_batch_gemv(c.any<lathe_dense>(), floats(c, batch, n_in), batch,
                                               n_in, n_out, floats(c, n_out, n_in),
                                               floats(c, batch, n_out)));
  }
  const Caller::Weight weight = some_weight(c);
  const lathe_dense_key& key = weight.key;
  Caller::seen(lathe_dense_batch_gemv_cached(
      c.any<lathe_dense>(), c.rarely() ? nullptr : &key, c.one_of(2) ? raw_of(c, weight) : nullptr,
      floats(c, batch, key.n_in), batch, floats(c, batch, key.n_out)));
}

void preload(Caller& c) {
  std::array<lathe_dense_source, 3> sources;
  for (lathe_dense_source& source : sources) {
    const Caller::Weight weight = some_weight(c);
    source = {weight.key, raw_of(c, weight)};
  }
  std::int32_t made = 0;
  Caller::seen(lathe_dense_preload(c.any<lathe_dense>(), c.rarely() ? nullptr : sources.data(),
                                   c.input.ConsumeIntegralInRange(-1, int(sources.size())),
                                   c.place(made)));
}

void blobs(Caller& c) {
  const std::uint64_t number =
      c.rarely() ? c.input.ConsumeIntegral<std::uint64_t>() : std::uint64_t(c.one_of(4));
  if (c.one_of(2)) {
    std::uint64_t address = 0;
    return Caller::seen(lathe_dense_get_blob(c.any<lathe_dense>(), number, c.place(address)));
  }
  std::int32_t made = 0;
  Caller::seen(lathe_dense_preload_blob(c.any<lathe_dense>(), number,
                                        c.rarely() ? nullptr : numbers(c),
                                        std::size_t(c.one_of(kMostFloats)), c.place(made)));
}

void open_dense(Caller& c) {
  auto options = api::sized<lathe_dense_options>();
  // Room for a few weights, for one blob, for none.
  constexpr std::int64_t kBudgets[] = {0, 1 << 18, 1 << 12, -1};
  options.budget_bytes = c.rarely() ? c.number(-1, 1) : kBudgets[c.one_of(4)];
  options.precision = c.number(-1, 3);
  options.cache = c.one_of(2) ? c.any<lathe_dense_cache>() : nullptr;
  c.resize(options);
  c.open<lathe_dense>([&](lathe_dense** out) {
    return lathe_dense_open(c.any<lathe_device>(), c.rarely() ? nullptr : &options, out);
  });
}

}  // namespace

void open_usual_dense(Caller& c) {
  lathe_dense_cache* cache = nullptr;
  Caller::seen(lathe_dense_cache_open(&cache));
  c.keep(cache);
  auto options = api::sized<lathe_dense_options>();
  options.budget_bytes = 1 << 18;
  options.cache = cache;
  c.open<lathe_dense>(
      [&](lathe_dense** out) { return lathe_dense_open(c.any<lathe_device>(), &options, out); });
}

void call_dense(Caller& c) {
  switch (c.one_of(14)) {
    case 0:
      return open_dense(c);
    case 1:
    case 2:
    case 3:
      return multiply(c);
    case 4:
      return preload(c);
    case 5:
      return blobs(c);
    case 6: {
      const lathe_dense_key key = some_weight(c).key;
      std::int32_t resident = 0;
      return Caller::seen(lathe_dense_is_resident(c.any<lathe_dense>(), c.rarely() ? nullptr : &key,
                                                  c.place(resident)));
    }
    case 7:
      return c.fill<lathe_dense_info>(
          [&](auto* info) { return lathe_dense_get_info(c.any<lathe_dense>(), info); });
    case 8: {
      std::uint64_t fingerprint = 0;
      const std::size_t bytes = std::size_t(c.one_of(64));
      return Caller::seen(lathe_weight_fingerprint(
          c.rarely() ? nullptr : numbers(c), bytes, c.input.ConsumeIntegral<std::uint64_t>(),
          c.input.ConsumeIntegral<std::uint64_t>(), c.place(fingerprint)));
    }
    case 9:
      return Caller::seen(lathe_dense_clear(c.any<lathe_dense>()));
    default:
      return cache_call(c);
  }
}

}  // namespace lathe::fuzz
