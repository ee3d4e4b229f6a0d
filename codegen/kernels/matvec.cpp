// Owns the matvec row: up to three matrices of tiles times one vector, with all that is done to the
// vector before and to the rows after. Device code: ptx_templates/ops/matvec.h.
#include <array>

#include "codegen/kernels/matvec.h"
#include "codegen/kernels/rows.h"
#include "lathe/codegen/tile.h"
#include "ptx_templates/ops/step_records.h"

namespace lathe {
namespace {

Result<void> check(const KernelKey& key) {
  LATHE_TRY(in_range("blocks", key.blocks, 1, 1024));
  LATHE_TRY(in_range("stages", key.stages, 1, 16));
  if (key.warps % 4 != 0 || key.warps < 4 || key.warps > dev::kPhaseWarps)
    return invalid("warps is {}; it must be 4, 8, 12 or 16", key.warps);
  LATHE_TRY(check_matrices(key, 1 << 30));
  // As many as a stream entry counts (ops/step_records.h).
  for (const auto& [format, n] : matrices(key))
    if (ceil_div(ceil_div(n, 16), key.blocks) > 65535)
      return invalid("n is {}; with {} blocks at most {} rows are covered", n, key.blocks,
                     std::int64_t{65535} * 16 * key.blocks);
  const std::int64_t tiles =
      std::int64_t{ceil_div(key.n, 16)} + ceil_div(key.n_b, 16) + ceil_div(key.n_c, 16);
  if (tiles * (key.blocks + 1) > (std::int64_t{1} << 31))
    return invalid("{} row tiles are too many for {} blocks", tiles, key.blocks);
  if (key.gated) {
    if (!key.norm) return invalid("gated rows need norm");
    // Gates are kept where their sums and the ups' may not fit at once.
    const int most = ceil_div(ceil_div(key.n, 16), key.blocks);
    const int met = dev::sum_places(tile_shape(key.format, key.n, key.k)->tiles_per_row, key.warps,
                                    tiles_together(key));
    if (most > dev::kGateFloats / 16 && 2 * most * 16 * met > dev::kPartialFloats / 2)
      return invalid("n is {}; with {} blocks at most {} gated rows are covered", key.n, key.blocks,
                     key.blocks * dev::kGateFloats);
  }
  if (key.joined && !key.norm) return invalid("joined needs norm");
  LATHE_TRY(check_epsilon(key));
  const int bytes = matvec_shared_bytes(key);
  if (bytes > kMostSharedBytes)
    return invalid("a block needs {} bytes of shared memory, more than {}", bytes,
                   kMostSharedBytes);
  return {};
}

Geometry geometry(const KernelKey& key) {
  return {.grid_x = static_cast<unsigned>(key.blocks),
          .threads = static_cast<unsigned>(key.warps * 32),
          .shared_bytes = static_cast<unsigned>(matvec_shared_bytes(key))};
}

std::vector<Param> params(const KernelKey& key) {
  std::vector<Param> out;
  add_weights(key, out);
  out.push_back(vector_in("x", key.k));
  if (key.norm) out.push_back(constant_in("norm", key.k));
  if (key.joined) {
    out.push_back(constant_in("post_norm", key.k));
    out.push_back(vector_in("stream", key.k));
    out.push_back(vector_out("joined_stream", key.k));
  }
  add_biases(key, out);
  if (key.residual) out.push_back(vector_in("residual", rows_of(key)));
  out.push_back(vector_out("y", rows_of(key)));
  return out;
}

OpCall call(const KernelKey& key) {
  OpCall call{"ops/matvec.h", key.paired ? "matvec_pairs_kernel" : "matvec_kernel", {}, true};
  const bool second = key.n_b > 0, third = key.n_c > 0;
  call.arguments = parameters_of({true, second, third,  // weights
                                  true, key.norm, key.joined, key.joined, key.joined, key.bias,
                                  key.bias && second, key.bias && third, key.residual, true});
  const Result<TileShape> shape = tile_shape(key.format, key.n, key.k);
  call.arguments.push_back(integer(key.k));
  call.arguments.push_back(integer(shape ? shape->subs : 0));
  add_matrix_numbers(key, call.arguments);
  for (const auto& [format, n] : matrices(key)) {
    const Result<TileShape> tiles = tile_shape(format, n, key.k);
    call.arguments.push_back(integer(n > 0 && tiles ? tiles->tile_bytes : 0));
  }
  for (int value : {key.gated ? 1 : 0, static_cast<int>(key.activation), key.blocks, key.warps,
                    key.stages, matvec_slot_bytes(key)})
    call.arguments.push_back(integer(value));
  call.arguments.push_back(real(key.epsilon));
  return call;
}

Cost cost(const KernelKey& key) {
  const auto [bytes, products] = weight_totals(key);
  const std::int64_t vectors = key.k * (1 + (key.norm ? 1 : 0) + (key.joined ? 2 : 0)) +
                               rows_of(key) * ((key.bias ? 1 : 0) + (key.residual ? 1 : 0));
  return {bytes + vectors * 4, (rows_of(key) + (key.joined ? key.k : 0)) * 4ll, 2 * products};
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  std::size_t next = 0;
  const auto floats = [&](bool there) {
    return there ? static_cast<float*>(arguments[next++]) : nullptr;
  };
  std::array<const std::byte*, 3> weights = {};
  for (std::size_t m = 0; m < 3; ++m)
    if (matrices(key)[m].n > 0) weights[m] = static_cast<const std::byte*>(arguments[next++]);
  const float* from = floats(true);
  const float* norm = floats(key.norm);
  const float* post = floats(key.joined);
  const float* stream = floats(key.joined);
  float* joined = floats(key.joined);
  std::array<const float*, 3> bias = {};
  for (std::size_t m = 0; m < 3; ++m) bias[m] = floats(key.bias && matrices(key)[m].n > 0);
  const float* residual = floats(key.residual);
  float* y = floats(true);

  const auto k = static_cast<std::size_t>(key.k);
  std::vector<double> x(k);
  for (std::size_t i = 0; i < k; ++i) x[i] = received(from[i]);
  if (key.joined) {
    const double factor = inverse_rms(x, static_cast<double>(key.epsilon));
    for (std::size_t i = 0; i < k; ++i) {
      x[i] = received(stream[i]) + x[i] * factor * static_cast<double>(post[i]);
      if (part == 0) joined[i] = static_cast<float>(x[i]);
    }
  }
  if (key.norm) {
    const double factor = inverse_rms(x, static_cast<double>(key.epsilon));
    for (std::size_t i = 0; i < k; ++i) x[i] *= factor * static_cast<double>(norm[i]);
  }
  std::vector<float> w(k);
  const auto dot = [&](std::size_t m, std::int64_t r) {
    const FormatRow& format = row(matrices(key)[m].format);
    format.unpack(weights[m] + r * row_bytes(format.format, key.k), key.k, w.data());
    return dot_product(w, x.data());
  };
  if (key.gated) {
    const auto [first, last] = share(key.n, part, parts);
    for (std::int64_t r = first; r < last; ++r)
      y[r] = static_cast<float>(activated(dot(0, r), key.activation) * dot(1, r));
    return;
  }
  std::int64_t before = 0;
  for (std::size_t m = 0; m < 3; ++m) {
    const int n = matrices(key)[m].n;
    const auto [first, last] = share(n, part, parts);
    for (std::int64_t r = first; r < last; ++r) {
      double value = dot(m, r);
      if (bias[m]) value += static_cast<double>(bias[m][r]);
      if (residual) value += received(residual[before + r]);
      y[before + r] = static_cast<float>(value);
    }
    before += n;
  }
}

// Weights of 16 bits are multiplied as they are, into sums of f32.
const char* inexact(const KernelKey& key) {
  const auto half = [](Format format, int n) {
    return n > 0 && (format == Format::f16 || format == Format::bf16);
  };
  const bool any =
      half(key.format, key.n) || half(key.format_b, key.n_b) || half(key.format_c, key.n_c);
  return any ? "mma" : nullptr;
}

}  // namespace

Result<void> check_matrices(const KernelKey& key, int most_rows) {
  LATHE_TRY(in_range("k", key.k, 32, 1 << 17));
  if (key.k % 32 != 0) return invalid("k is {}; it must be a multiple of 32", key.k);
  LATHE_TRY(in_range("n", key.n, 1, most_rows));
  LATHE_TRY(in_range("n_b", key.n_b, 0, most_rows));
  LATHE_TRY(in_range("n_c", key.n_c, 0, key.n_b > 0 ? most_rows : 0));
  for (const auto& [format, n] : matrices(key)) {
    if (n == 0) continue;
    if (tile_number(format) < 0) return invalid("{} weights have no decode core", row(format).name);
    if (const auto shape = tile_shape(format, n, key.k); !shape) return shape.error();
  }
  if (!key.gated) return {};
  if (key.n_b != key.n || key.n_c != 0)
    return invalid("n_b is {}; with gated rows it must be n ({}), and n_c 0", key.n_b, key.n);
  if (key.residual || key.bias) return invalid("gated rows have neither bias nor residual");
  if (key.activation != Activation::silu && key.activation != Activation::gelu_tanh)
    return invalid("the activation of gated rows must be silu or gelu_tanh");
  return {};
}

int rows_of(const KernelKey& key) {
  return key.gated ? key.n : key.n + key.n_b + key.n_c;
}

void add_weights(const KernelKey& key, std::vector<Param>& params) {
  const char* const names[] = {"weights", "weights_b", "weights_c"};
  for (std::size_t i = 0; i < 3; ++i)
    if (const auto [format, n] = matrices(key)[i]; n > 0)
      params.push_back(tiles_param(names[i], Matrix{format, n, key.k}, Access::read));
}

void add_biases(const KernelKey& key, std::vector<Param>& params) {
  const char* const names[] = {"bias", "bias_b", "bias_c"};
  for (std::size_t i = 0; i < 3; ++i)
    if (const int n = matrices(key)[i].n; key.bias && n > 0)
      params.push_back(constant_in(names[i], n));
}

void add_matrix_numbers(const KernelKey& key, std::vector<OpArgument>& arguments) {
  for (const auto& [format, n] : matrices(key)) arguments.push_back(integer(n));
  for (const auto& [format, n] : matrices(key))
    arguments.push_back(integer(tile_number(n > 0 ? format : key.format)));
}

WeightTotals weight_totals(const KernelKey& key) {
  WeightTotals out;
  for (const auto& [format, n] : matrices(key)) {
    if (n == 0) continue;
    out.bytes += n * row_bytes(format, key.k);
    out.values += std::int64_t{n} * key.k;
  }
  return out;
}

namespace {
template <class Number>
double dot_of(std::span<const Number> w, const double* x) {
  double sums[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= w.size(); i += 8)
    for (std::size_t j = 0; j < 8; ++j) sums[j] += static_cast<double>(w[i + j]) * x[i + j];
  for (; i < w.size(); ++i) sums[0] += static_cast<double>(w[i]) * x[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}
}  // namespace

double dot_product(std::span<const float> w, const double* x) {
  return dot_of(w, x);
}
double dot_product(std::span<const double> w, const double* x) {
  return dot_of(w, x);
}

double inverse_rms(std::span<const double> x, double epsilon) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  return 1 / std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
}

int tile_number(Format format) {
  switch (format) {
    case Format::q4_0:
      return dev::kTileQ4_0;
    case Format::q4_1:
      return dev::kTileQ4_1;
    case Format::q5_0:
      return dev::kTileQ5_0;
    case Format::q5_1:
      return dev::kTileQ5_1;
    case Format::q8_0:
      return dev::kTileQ8_0;
    case Format::q4_k:
      return dev::kTileQ4_K;
    case Format::q5_k:
      return dev::kTileQ5_K;
    case Format::q6_k:
      return dev::kTileQ6_K;
    case Format::q2_k:
      return dev::kTileQ2_K;
    case Format::q3_k:
      return dev::kTileQ3_K;
    case Format::iq4_nl:
      return dev::kTileIQ4_NL;
    case Format::iq4_xs:
      return dev::kTileIQ4_XS;
    case Format::mxfp4:
      return dev::kTileMXFP4;
    case Format::f16:
      return dev::kTileF16;
    case Format::bf16:
      return dev::kTileBF16;
    default:
      return -1;
  }
}

int matvec_slot_bytes(const KernelKey& key) {
  int most = 0;
  for (const auto& [format, n] : matrices(key)) {
    if (n == 0) continue;
    if (const auto shape = tile_shape(format, n, key.k))
      most = std::max(most, dev::slot_bytes(tiles_together(key) * shape->tile_bytes));
  }
  return most;
}

int matvec_shared_bytes(const KernelKey& key) {
  const Result<TileShape> shape = tile_shape(key.format, key.n, key.k);
  if (!shape) return 0;
  return dev::stream_bytes(key.warps, key.stages, matvec_slot_bytes(key)) + dev::kPhaseScratch +
         dev::column_bytes(shape->tiles_per_row, key.warps, tiles_together(key)) +
         3 * dev::kStreamEntryBytes;
}

const KernelRow kMatvecRow = {
    KernelType::matvec,
    "matvec",
    "up to three matrices of tiles times one vector, with norm, bias, residual or GLU",
    "k n n_b n_c format_b format_c warps blocks stages paired early epsilon bias residual gated "
    "norm "
    "joined activation",
    kAnyFormat,
    check,
    geometry,
    params,
    call,
    cost,
    oracle,
    2e-4,
    "activations are 16-bit integers with a scale per 32 values: 3e-5 for normal values, up to "
    "2e-4 where one of the 32 dwarfs the rest",
    no_template,
    90,
    "bulk copies",
    inexact};

}  // namespace lathe
