// Owns the norm_tokens row: the rows of a chunk's tokens as operands of matmul. Device code:
// ptx_templates/ops/norm_tokens.h.
#include "codegen/kernels/matvec.h"
#include "codegen/kernels/rows.h"
#include "ptx_templates/ops/matmul_shapes.h"

namespace lathe {
namespace {

Result<void> check(const KernelKey& key) {
  LATHE_TRY(in_range("k", key.k, 4, 1 << 24));
  if (key.k % 4) return invalid("k is {}; it must be a multiple of 4", key.k);
  LATHE_TRY(has_tokens(key));
  LATHE_TRY(in_range("warps", key.warps, 1, 32));
  LATHE_TRY(check_epsilon(key));
  if (key.batched && key.tokens > dev::kFewTokens)
    return invalid("tokens is {}; a batch has at most {}", key.tokens, int{dev::kFewTokens});
  return {};
}

Geometry geometry(const KernelKey& key) {
  return {.grid_x = static_cast<unsigned>(key.tokens),
          .threads = static_cast<unsigned>(key.warps * 32),
          .shared_bytes = static_cast<unsigned>(key.warps * 8)};
}

std::vector<Param> params(const KernelKey& key) {
  const std::int64_t values = std::int64_t{key.tokens} * key.k;
  std::vector<Param> out = {vector_in("x", values), vector_in("norm", key.k)};
  if (key.joined) {
    out.push_back(vector_in("post_norm", key.k));
    out.push_back(vector_in("stream", values));
    out.push_back(vector_out("joined_stream", values));
  }
  out.push_back(chunk_in());
  out.push_back(operands_out("y", key.batched, key.tokens, key.k));
  return out;
}

OpCall call(const KernelKey& key) {
  OpCall call{"ops/norm_tokens.h", "norm_tokens",
              parameters_of({true, true, key.joined, key.joined, key.joined, true, true})};
  call.arguments.push_back(integer(key.k));
  call.arguments.push_back(integer(operand_tokens(key.batched, key.tokens)));
  call.arguments.push_back(integer(key.warps));
  call.arguments.push_back(real(key.epsilon));
  return call;
}

Cost cost(const KernelKey& key) {
  const std::int64_t values = std::int64_t{key.tokens} * key.k;
  return {(values + key.k) * (key.joined ? 8 : 4), values * (key.joined ? 6 : 2), values * 4};
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  std::size_t next = 0;
  const auto floats = [&](bool there) {
    return there ? static_cast<float*>(arguments[next++]) : nullptr;
  };
  const float* from = floats(true);
  const float* norm = floats(true);
  const float* post = floats(key.joined);
  const float* stream = floats(key.joined);
  float* joined = floats(key.joined);
  const auto* chunk = static_cast<const std::int32_t*>(arguments[next++]);
  const OperandRows y = {static_cast<std::uint16_t*>(arguments[next]), dev::operand_width(key.k),
                         operand_tokens(key.batched, key.tokens)};
  const auto k = static_cast<std::size_t>(key.k);
  std::vector<double> x(k);
  const auto [first, last] = share(std::min(chunk[0], key.tokens), part, parts);
  for (std::int64_t token = first; token < last; ++token) {
    for (std::size_t i = 0; i < k; ++i)
      x[i] = static_cast<double>(from[token * key.k + std::int64_t(i)]);
    if (post) {
      const double factor = inverse_rms(x, static_cast<double>(key.epsilon));
      for (std::size_t i = 0; i < k; ++i) {
        const std::int64_t at = token * key.k + std::int64_t(i);
        x[i] = static_cast<double>(stream[at]) + x[i] * factor * static_cast<double>(post[i]);
        joined[at] = static_cast<float>(x[i]);
      }
    }
    const double factor = inverse_rms(x, static_cast<double>(key.epsilon));
    for (int i = 0; i < y.width; ++i)
      y.set(int(token), i,
            i < key.k ? x[std::size_t(i)] * factor * static_cast<double>(norm[i]) : 0);
    y.set_means(int(token));
  }
}

}  // namespace

const KernelRow kNormTokensRow = {
    KernelType::norm_tokens,
    "norm_tokens",
    "the normed rows of a chunk's tokens, as operands of matmul",
    "k tokens warps early epsilon joined batched",
    "f32",
    check,
    geometry,
    params,
    call,
    cost,
    oracle,
    6e-4,
    "operands are f16, up to 2^20 and with steps of 2^-20: 2e-4 of normal values",
    no_template};

}  // namespace lathe
