// Owns the argmax and argmax_merge rows: the index of the greatest value, of those that a set
// allows where there is one; ties to the lower index, NaN never wins, -1 when nothing can win.
// Device code: ptx_templates/ops/argmax.h.
#include "codegen/kernels/rows.h"

#include <bit>
#include <limits>

namespace lathe {
namespace {

constexpr std::int32_t kNone = 0x7fffffff;

struct Best {
  float value = -std::numeric_limits<float>::infinity();
  std::int32_t index = kNone;

  void offer(float v, std::int32_t i) {
    if (v > value || (v == value && i < index)) value = v, index = i;
  }
};

Result<void> check(const KernelKey& key) {
  LATHE_TRY(in_range("n", key.n, 1, 1 << 30));
  LATHE_TRY(in_range("splits", key.splits, 1, std::min(key.n, 1024)));
  return in_range("warps", key.warps, 1, 32);
}

Geometry geometry(const KernelKey& key) {
  return {.grid_x = static_cast<unsigned>(key.splits),
          .threads = static_cast<unsigned>(key.warps * 32),
          .shared_bytes = key.warps > 1 ? static_cast<unsigned>(key.warps * 8) : 0u};
}

std::vector<Param> params(const KernelKey& key) {
  std::vector<Param> out = {vector_in("x", key.n)};
  if (key.masked) out.push_back(token_sets_in("allowed", 1, key.n));
  out.push_back(vector_out("partial", key.splits * 2ll));
  return out;
}

OpCall call(const KernelKey& key) {
  OpCall call{"ops/argmax.h", "argmax", parameters_of({true, key.masked, true})};
  for (int value : {key.n, key.splits, key.warps}) call.arguments.push_back(integer(value));
  return call;
}

Cost cost(const KernelKey& key) {
  return {key.n * 4ll + (key.masked ? token_set_bytes(key.n) : 0), key.splits * 8ll, key.n};
}

void oracle(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  const auto* x = static_cast<const float*>(arguments[0]);
  const auto* allowed = key.masked ? static_cast<const std::uint32_t*>(arguments[1]) : nullptr;
  auto* partial = static_cast<float*>(arguments.back());
  const int length = ceil_div(key.n, key.splits);
  const auto [first, last] = share(key.splits, part, parts);
  for (std::int64_t s = first; s < last; ++s) {
    Best best;
    const std::int64_t begin = s * length;
    const std::int64_t end = std::min<std::int64_t>(begin + length, key.n);
    for (std::int64_t i = begin; i < end; ++i)
      if (in_token_set(allowed, i)) best.offer(x[i], static_cast<std::int32_t>(i));
    partial[2 * s] = best.value;
    partial[2 * s + 1] = std::bit_cast<float>(best.index);
  }
}

Result<void> check_merge(const KernelKey& key) {
  LATHE_TRY(in_range("splits", key.splits, 1, 1024));
  return in_range("warps", key.warps, 1, 1);
}

Geometry geometry_merge(const KernelKey&) {
  return {};
}

std::vector<Param> params_merge(const KernelKey& key) {
  return {vector_in("partial", key.splits * 2ll),
          {"token", Access::write, Element::i32, 4, 4, false, false}};
}

OpCall call_merge(const KernelKey& key) {
  OpCall call{"ops/argmax.h", "argmax_merge", parameters(2)};
  call.arguments.push_back(integer(key.splits));
  return call;
}

Cost cost_merge(const KernelKey& key) {
  return {key.splits * 8ll, 4, key.splits};
}

void oracle_merge(const KernelKey& key, std::span<void* const> arguments, int part, int) {
  if (part != 0) return;
  const auto* partial = static_cast<const float*>(arguments[0]);
  Best best;
  for (int s = 0; s < key.splits; ++s)
    best.offer(partial[2 * s], std::bit_cast<std::int32_t>(partial[2 * s + 1]));
  *static_cast<std::int32_t*>(arguments[1]) = best.index == kNone ? -1 : best.index;
}

const char* text_template(const KernelKey& key) {
  return key.masked ? nullptr : "argmax";
}
const char* text_template_merge(const KernelKey&) {
  return "argmax_merge";
}

}  // namespace

const KernelRow kArgmaxRow = {KernelType::argmax,
                              "argmax",
                              "greatest value and its index, per split",
                              "n warps splits masked",
                              "f32",
                              check,
                              geometry,
                              params,
                              call,
                              cost,
                              oracle,
                              0,
                              "comparisons only",
                              text_template};

const KernelRow kArgmaxMergeRow = {KernelType::argmax_merge,
                                   "argmax_merge",
                                   "index of the greatest value over the splits",
                                   "warps splits",
                                   "f32",
                                   check_merge,
                                   geometry_merge,
                                   params_merge,
                                   call_merge,
                                   cost_merge,
                                   oracle_merge,
                                   0,
                                   "comparisons only",
                                   text_template_merge};

}  // namespace lathe
