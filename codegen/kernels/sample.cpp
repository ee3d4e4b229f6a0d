// Owns the top_k and sample rows: the choice of the next token by the rules of a SamplingState.
// Device code: ptx_templates/ops/top_k.h and ptx_templates/ops/sample.h.
//
// A candidate is passed from one to the other as 64 bits, in which the greater number is the
// greater logit and, of equal logits, the lower id; 0 is none.
#include <array>
#include <bit>
#include <cstddef>
#include <functional>
#include <limits>

#include "codegen/kernels/rows.h"
#include "lathe/codegen/sampling.h"
#include "ptx_templates/ops/math.h"
#include "ptx_templates/ops/random.h"
#include "ptx_templates/ops/sampling.h"

namespace lathe {
namespace {

// What the host writes is what the kernels read.
static_assert(sizeof(SamplingState) == sizeof(dev::SamplingState));
static_assert(kMaxTopK == dev::kTopK && kMaxRepeatLast == dev::kRecentTokens);
#define LATHE_SAME(field) \
  static_assert(offsetof(SamplingState, field) == offsetof(dev::SamplingState, field))
LATHE_SAME(seed_low);
LATHE_SAME(seed_high);
LATHE_SAME(temperature);
LATHE_SAME(top_k);
LATHE_SAME(top_p);
LATHE_SAME(min_p);
LATHE_SAME(repeat_penalty);
LATHE_SAME(repeat_last);
LATHE_SAME(recent);
#undef LATHE_SAME

constexpr std::int64_t kListBytes = kMaxTopK * 8;

// One token, or as many as a batch has.
Result<void> check_batch(const KernelKey& key) {
  LATHE_TRY(has_tokens(key));
  if (key.tokens == 1 || key.batched) return {};
  return invalid("tokens is {}; without batched there is one", key.tokens);
}
std::int64_t tokens(const KernelKey& key) {
  return key.tokens;
}
Param token(const KernelKey& key, const char* name, Access access) {
  return {name, access, Element::i32, tokens(key) * 4, 4, false, false};
}
// Where each token stands, and how it is chosen.
std::vector<Param> rules_in(const KernelKey& key) {
  const std::int64_t bytes = tokens(key) * static_cast<std::int64_t>(sizeof(SamplingState));
  return {key.batched ? rows_in(key.tokens) : position_in(),
          {"sampling", Access::read, Element::i32, bytes, 16, false, false}};
}
// With a batch's chunk before the others.
std::vector<Param> of_batch(const KernelKey& key, std::vector<Param> params) {
  if (key.batched) params.insert(params.begin(), chunk_in());
  return params;
}

// How many tokens an oracle has. Leaves in `arguments` those behind a batch's chunk.
int used_tokens(const KernelKey& key, std::span<void* const>& arguments) {
  if (!key.batched) return 1;
  const int count = *static_cast<const std::int32_t*>(arguments[0]);
  arguments = arguments.subspan(1);
  return std::min(count, key.tokens);
}

// The greatest 64 of what is offered, greatest first, without an allocation.
class List {
 public:
  void offer(std::uint64_t candidate) {
    if (candidate <= items_.back()) return;
    const auto at = std::upper_bound(items_.begin(), items_.end(), candidate, std::greater<>());
    std::copy_backward(at, items_.end() - 1, items_.end());
    *at = candidate;
  }
  const std::array<std::uint64_t, kMaxTopK>& items() const { return items_; }

 private:
  std::array<std::uint64_t, kMaxTopK> items_ = {};
};

std::uint64_t pack(float logit, std::int32_t id) {
  if (std::isnan(logit)) return 0;
  const auto bits = std::bit_cast<std::int32_t>(logit == 0 ? 0.0f : logit);
  // As integers the negative floats fall; then the whole range is moved above 0.
  const std::int64_t order =
      bits < 0 ? std::int64_t{std::numeric_limits<std::int32_t>::min()} - 1 - bits : bits;
  return static_cast<std::uint64_t>(order + (std::int64_t{1} << 31)) << 32 |
         (0xffffffffu - static_cast<std::uint32_t>(id));
}
float logit_of(std::uint64_t candidate) {
  const auto order = static_cast<std::int64_t>(candidate >> 32) - (std::int64_t{1} << 31);
  const std::int64_t bits =
      order < 0 ? std::int64_t{std::numeric_limits<std::int32_t>::min()} - 1 - order : order;
  return std::bit_cast<float>(static_cast<std::int32_t>(bits));
}
std::int32_t id_of(std::uint64_t candidate) {
  return static_cast<std::int32_t>(0xffffffffu - static_cast<std::uint32_t>(candidate));
}

// The recent tokens in [begin, end), rising, so that a pass over the logits meets them in order.
class RecentTokens {
 public:
  RecentTokens(const SamplingState& state, std::int32_t token, int position, std::int64_t begin,
               std::int64_t end) {
    const int count = state.repeat_penalty == 1 ? 0 : std::min(state.repeat_last, position + 1);
    for (int i = 0; i < count; ++i) {
      const std::int32_t id = i == 0 ? token : state.recent[(position - i) % kMaxRepeatLast];
      if (id >= begin && id < end) ids_[count_++] = id;
    }
    std::sort(ids_.begin(), ids_.begin() + count_);
  }
  // Ids must be asked for in rising order.
  bool contains(std::int64_t id) {
    while (next_ < count_ && ids_[next_] < id) ++next_;
    return next_ < count_ && ids_[next_] == id;
  }

 private:
  std::array<std::int32_t, kMaxRepeatLast> ids_;
  std::size_t count_ = 0, next_ = 0;
};

Result<void> check_top_k(const KernelKey& key) {
  LATHE_TRY(check_batch(key));
  LATHE_TRY(in_range("n", key.n, 1, 1 << 30));
  LATHE_TRY(in_range("splits", key.splits, 1, std::min(key.n, 1024)));
  return in_range("warps", key.warps, 1, 16);
}

Geometry geometry_top_k(const KernelKey& key) {
  const int threads = key.warps * 32;
  return {
      .grid_x = static_cast<unsigned>(key.splits),
      .grid_y = static_cast<unsigned>(key.tokens),
      .threads = static_cast<unsigned>(threads),
      .shared_bytes = static_cast<unsigned>(dev::top_k_shared_bytes(key.n, key.splits, threads))};
}

std::vector<Param> params_top_k(const KernelKey& key) {
  std::vector<Param> out = {vector_in("logits", tokens(key) * key.n),
                            token(key, "token", Access::read)};
  for (const Param& param : rules_in(key)) out.push_back(param);
  if (key.masked) out.push_back(token_sets_in("allowed", tokens(key), key.n));
  out.push_back(vector_out("partial", tokens(key) * key.splits * kListBytes / 4));
  return of_batch(key, std::move(out));
}

OpCall call_top_k(const KernelKey& key) {
  OpCall call{"ops/top_k.h", "top_k",
              parameters_of({key.batched, true, true, true, true, key.masked, true})};
  for (int value : {key.n, key.splits, key.warps}) call.arguments.push_back(integer(value));
  return call;
}

Cost cost_top_k(const KernelKey& key) {
  const std::int64_t m = tokens(key);
  const std::int64_t set_bytes = key.masked ? token_set_bytes(key.n) : 0;
  return {m * (key.n * std::int64_t{4} + set_bytes), m * key.splits * kListBytes, m * key.n};
}

void top_k_of(const KernelKey& key, const float* logits, std::int32_t token, std::int32_t position,
              const SamplingState& state, const std::uint32_t* allowed, std::uint64_t* lists,
              int part, int parts) {
  const int length = ceil_div(key.n, key.splits);
  const auto [first, last] = share(key.splits, part, parts);
  for (std::int64_t s = first; s < last; ++s) {
    const std::int64_t begin = s * length;
    const std::int64_t end = std::min<std::int64_t>(begin + length, key.n);
    RecentTokens recent(state, token, position, begin, end);
    List list;
    for (std::int64_t i = begin; i < end; ++i) {
      float logit = logits[i];
      if (recent.contains(i))
        logit = logit > 0 ? logit / state.repeat_penalty : logit * state.repeat_penalty;
      if (in_token_set(allowed, i)) list.offer(pack(logit, static_cast<std::int32_t>(i)));
    }
    const int wanted = state.temperature == 0 ? 1 : kMaxTopK;
    std::copy_n(list.items().begin(), wanted, lists + s * kMaxTopK);
  }
}

void oracle_top_k(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  const int count = used_tokens(key, arguments);
  const auto* sets = key.masked ? static_cast<const std::uint32_t*>(arguments[4]) : nullptr;
  for (int row = 0; row < count; ++row)
    top_k_of(key, static_cast<const float*>(arguments[0]) + std::int64_t{row} * key.n,
             static_cast<const std::int32_t*>(arguments[1])[row],
             static_cast<const std::int32_t*>(arguments[2])[2 * row],
             static_cast<const SamplingState*>(arguments[3])[row],
             sets ? sets + std::int64_t{row} * ceil_div(key.n, 32) : nullptr,
             static_cast<std::uint64_t*>(arguments.back()) + row * key.splits * kMaxTopK, part,
             parts);
}

Result<void> check_sample(const KernelKey& key) {
  LATHE_TRY(check_batch(key));
  LATHE_TRY(in_range("splits", key.splits, 1, 1024));
  return in_range("warps", key.warps, 1, 16);
}

Geometry geometry_sample(const KernelKey& key) {
  const int threads = key.warps * 32;
  return {.grid_x = static_cast<unsigned>(key.tokens),
          .threads = static_cast<unsigned>(threads),
          .shared_bytes = static_cast<unsigned>(dev::sample_shared_bytes(threads))};
}

std::vector<Param> params_sample(const KernelKey& key) {
  std::vector<Param> out = {vector_in("partial", tokens(key) * key.splits * kListBytes / 4)};
  for (const Param& param : rules_in(key)) out.push_back(param);
  out.push_back(token(key, "sampled", Access::write));
  return of_batch(key, std::move(out));
}

OpCall call_sample(const KernelKey& key) {
  OpCall call{"ops/sample.h", "sample", parameters_of({key.batched, true, true, true, true})};
  for (int value : {key.splits, key.warps}) call.arguments.push_back(integer(value));
  return call;
}

Cost cost_sample(const KernelKey& key) {
  const std::int64_t lists = tokens(key) * key.splits;
  return {lists * kListBytes, tokens(key) * 4, lists * kMaxTopK};
}

// The first `count` candidates that the rules keep. weights[i] is the i-th candidate's probability
// at temperature 1, relative to the first one's.
int kept(const SamplingState& state, const std::array<float, kMaxTopK>& weights, int count) {
  float total = 0;
  for (int i = 0; i < count; ++i) total += weights[i];
  float reached = 0;
  for (int i = 0; i < count; ++i) {
    if (weights[i] < state.min_p) return i;
    reached += weights[i];
    if (state.top_p < 1 && reached >= total * state.top_p) return i + 1;
  }
  return count;
}

std::int32_t draw(const List& list, const SamplingState& state, std::int32_t position) {
  const auto& candidates = list.items();
  if (candidates[0] == 0) return -1;
  const float greatest = logit_of(candidates[0]);
  if (state.temperature == 0 || std::isinf(greatest)) return id_of(candidates[0]);

  std::array<float, kMaxTopK> below, weights;
  int count = 0;
  for (; count < state.top_k && candidates[count] != 0; ++count) {
    below[count] = logit_of(candidates[count]) - greatest;
    weights[count] = dev::exponential(below[count]);
  }
  count = kept(state, weights, count);
  float total = 0;
  for (int i = 0; i < count; ++i) {
    weights[i] = dev::exponential(below[i] / state.temperature);
    total += weights[i];
  }
  const float drawn = total * dev::uniform_at(state.seed_low, state.seed_high, position);
  float reached = 0;
  for (int i = 0; i < count; ++i) {
    reached += weights[i];
    if (drawn < reached) return id_of(candidates[i]);
  }
  return id_of(candidates[count - 1]);
}

void oracle_sample(const KernelKey& key, std::span<void* const> arguments, int part, int parts) {
  const auto [first, last] = share(used_tokens(key, arguments), part, parts);
  for (std::int64_t row = first; row < last; ++row) {
    const auto* lists =
        static_cast<const std::uint64_t*>(arguments[0]) + row * key.splits * kMaxTopK;
    const std::int32_t position = static_cast<const std::int32_t*>(arguments[1])[2 * row];
    const auto& state = static_cast<const SamplingState*>(arguments[2])[row];
    const int used = state.temperature == 0 ? 1 : kMaxTopK;
    List list;
    for (int s = 0; s < key.splits; ++s)
      for (int i = 0; i < used; ++i) list.offer(lists[s * kMaxTopK + i]);
    static_cast<std::int32_t*>(arguments[3])[row] = draw(list, state, position);
  }
}

const char* text_template_top_k(const KernelKey& key) {
  return key.batched || key.masked ? nullptr : "top_k";
}
const char* text_template_sample(const KernelKey& key) {
  return key.batched ? nullptr : "sample";
}

}  // namespace

const KernelRow kTopKRow = {KernelType::top_k,
                            "top_k",
                            "the 64 greatest logits after the repeat penalty, per split",
                            "n tokens warps splits early batched masked",
                            "f32",
                            check_top_k,
                            geometry_top_k,
                            params_top_k,
                            call_top_k,
                            cost_top_k,
                            oracle_top_k,
                            0,
                            "comparisons, and one correctly rounded operation for the penalty",
                            text_template_top_k};

const KernelRow kSampleRow = {KernelType::sample,
                              "sample",
                              "the next token: the rules of sampling over all splits, and the draw",
                              "tokens warps splits early batched",
                              "f32",
                              check_sample,
                              geometry_sample,
                              params_sample,
                              call_sample,
                              cost_sample,
                              oracle_sample,
                              0,
                              "f32 operations that round correctly, in one order everywhere",
                              text_template_sample};

}  // namespace lathe
