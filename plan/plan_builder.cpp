// Owns building a plan: options resolved, steps made, everything checked before it is returned.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <new>
#include <unordered_set>

#include "lathe/codegen/kernel_table.h"
#include "lathe/plan/plan.h"
#include "plan/decoder_recipe.h"
#include "plan/fused_recipe.h"
#include "plan/kv_atoms.h"
#include "plan/model_part.h"
#include "plan/selection.h"
#include "plan/tuning.h"
#include "plan/tuning_overrides.h"

namespace lathe {
namespace {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 30;
// Whose positions have numbers below 2^31.
constexpr int kMostPages = std::numeric_limits<int>::max() / kPagePositions;

// Where a sequence begins is an int for its kernels: a position of the cache or, of one in pages,
// an entry of the table.
Result<void> check_sequences(const PlanOptions& options) {
  if (options.kv_pages < 0 || options.kv_pages > kMostPages) {
    return Error{
        Code::invalid_argument,
        fmt::format("kv_pages is {}; it must be 0 (no pages) to {}", options.kv_pages, kMostPages),
        {}};
  }
  const bool paged = options.kv_pages > 0;
  const std::int64_t own = paged ? pages_of(options.context) : options.context;
  if (options.sequences >= 1 && options.sequences <= kMostSequences &&
      options.sequences * own <= std::numeric_limits<int>::max())
    return {};
  return Error{Code::invalid_argument,
               fmt::format("sequences is {}; it must be 1 to {}, and times {} {} less than 2^31",
                           options.sequences, kMostSequences, own,
                           paged ? "pages of a whole context" : "positions"),
               {}};
}

Result<PlanOptions> resolve(PlanOptions options, const ModelSpec& spec) {
  if (options.context == 0) options.context = std::min(spec.context, kDefaultContext);
  if (options.context < 1 || options.context > spec.context) {
    return Error{Code::invalid_argument,
                 fmt::format("the context is {} positions; it must be 1 to the {} that the model "
                             "was trained for",
                             options.context, spec.context),
                 {}};
  }
  options.chunk = std::min(options.chunk, options.context);
  LATHE_ASSIGN(options.part, resolve_part(options.part, spec));
  LATHE_TRY(check_atoms(options, spec));
  if (options.atoms.count > 0) options.kv = Format::f32;
  const bool fused = options.fusion == Fusion::full;
  if (options.kv != Format::f16 && options.kv != Format::f32 &&
      !(fused && options.kv == Format::q8_0)) {
    return Error{Code::unsupported,
                 fmt::format("a KV cache in {} is not supported; known: f16, f32{}",
                             row(options.kv).name, fused ? ", q8_0" : ""),
                 {}};
  }
  if (options.blocks == 0) {
    LATHE_ASSIGN(const TuningOverrides tuning, tuning_of(options));
    options.blocks = tuning.blocks.value_or(0);
  }
  if (options.blocks < 0 || options.blocks > kMostBlocks) {
    return Error{Code::invalid_argument,
                 fmt::format("blocks is {}; it must be 0 (the GPU's multiprocessors) to {}",
                             options.blocks, kMostBlocks),
                 {}};
  }
  if (options.gpu.multiprocessors < 1 || options.gpu.multiprocessors > kMostBlocks) {
    return Error{Code::invalid_argument,
                 fmt::format("a GPU has {} multiprocessors; it must have 1 to {}",
                             options.gpu.multiprocessors, kMostBlocks),
                 {}};
  }
  if (options.blocks > 0) options.gpu.multiprocessors = options.blocks;
  options.blocks = options.gpu.multiprocessors;
  LATHE_TRY(check_sequences(options));
  if (options.chunk < 0 || options.chunk > kMostChunkTokens) {
    return Error{Code::invalid_argument,
                 fmt::format("chunk is {}; it must be 0 (prompts token by token) to {}",
                             options.chunk, kMostChunkTokens),
                 {}};
  }
  if (options.attention_splits < 0 || options.attention_splits > kMaxAttentionSplits) {
    return Error{Code::invalid_argument,
                 fmt::format("attention_splits is {}; it must be 0 (automatic) to {}",
                             options.attention_splits, kMaxAttentionSplits),
                 {}};
  }
  return options;
}

Result<void> check_spec(const ModelSpec& spec) {
  const auto [least, greatest] =
      std::minmax({spec.layers, spec.hidden, spec.ffn, spec.heads, spec.kv_heads, spec.head_dim,
                   spec.vocab, spec.context});
  const bool consistent =
      least > 0 && greatest <= kMaxSize && std::int64_t{spec.heads} * spec.head_dim <= kMaxSize &&
      spec.heads % spec.kv_heads == 0 && !spec.ropes.empty() &&
      std::ssize(spec.per_layer) == spec.layers &&
      std::all_of(spec.per_layer.begin(), spec.per_layer.end(), [&](const LayerSpec& layer) {
        return layer.window >= 0 && layer.rope >= 0 && layer.rope < std::ssize(spec.ropes);
      });
  if (consistent) return {};
  return Error{Code::invalid_argument,
               "the model spec is inconsistent: every size must be 1 to 2^30, heads a multiple of "
               "kv_heads, and each layer must name one of its ropes",
               {}};
}

// A tensor that no step reads would be part of the model ignored.
Result<void> check_all_used(const GgufFile& file, const Plan& plan) {
  std::unordered_set<std::string_view> used;
  for (const WeightSlot& slot : plan.weights) used.insert(slot.name);
  if (!plan.spec.ropes.front().factors.empty()) used.insert("rope_freqs.weight");
  for (const GgufTensor& tensor : file.tensors()) {
    if (used.contains(tensor.name)) continue;
    return Error{Code::unsupported,
                 fmt::format("the file has the tensor '{}', which no step of the '{}' family reads",
                             tensor.name, plan.spec.architecture),
                 {{"file", file.path()}}};
  }
  return {};
}

Result<void> check_steps(const Plan& plan) {
  for (const Step& step : plan.steps) {
    if (auto result = check_key(step.key); !result) {
      const std::string where =
          step.layer < 0 ? step.label : fmt::format("{} of layer {}", step.label, step.layer);
      Error error = std::move(result).error().with("step", where);
      error.code = Code::unsupported;
      return error;
    }
    const std::size_t params = row(step.key.type).params(step.key).size();
    if (params != step.operands.size()) {
      return Error{Code::internal,
                   fmt::format("step '{}' has {} operands, but its kernel has {} parameters",
                               step.label, step.operands.size(), params),
                   {{"key", step.key.text()}}};
    }
  }
  return {};
}

// Makes the spec the part's.
void take_part(Plan& plan) {
  const ModelPart& part = plan.options.part;
  const ModelPart all = {.layers = plan.spec.layers};
  plan.whole = part == all;
  if (plan.whole) return;
  auto& layers = plan.spec.per_layer;
  layers.erase(layers.begin() + part.first_layer + part.layers, layers.end());
  layers.erase(layers.begin(), layers.begin() + part.first_layer);
  plan.spec.layers = part.layers;
  plan.options.chunk = 0;
}

// A table that is larger than all that it tells apart is of sequences, or of a context, that the
// pages are not meant for, and may be of gigabytes: it has fewer than 2^31 entries.
Result<void> check_page_table(const Plan& plan) {
  const PlanOptions& options = plan.options;
  if (options.kv_pages == 0) return {};
  const std::int64_t page =
      2 * std::int64_t{plan.spec.layers} * kPagePositions * plan.kv_bytes_per_position();
  const std::int64_t table = plan.page_table_bytes();
  const std::int64_t least = (table + page - 1) / page;
  if (options.kv_pages >= least) return {};
  return Error{
      Code::invalid_argument,
      fmt::format("kv_pages is {}; the table of the pages of {} sequences of {} positions "
                  "takes {} bytes, more than these pages of {} bytes each: there must be {}, or "
                  "fewer sequences or positions",
                  options.kv_pages, options.sequences, options.context, table, page, least),
      {}};
}

Result<Plan> build(const GgufFile& file, const ModelSpec& spec, const PlanOptions& options) {
  LATHE_TRY(check_spec(spec));
  Plan plan;
  plan.spec = spec;
  LATHE_ASSIGN(plan.options, resolve(options, spec));
  take_part(plan);
  LATHE_TRY(check_page_table(plan));
  LATHE_TRY(plan.options.fusion == Fusion::full ? add_fused_steps(file, plan)
                                                : add_decoder_steps(file, plan));
  if (plan.whole) LATHE_TRY(check_all_used(file, plan));
  LATHE_TRY(check_steps(plan));
  LATHE_ASSIGN(const TuningOverrides tuning, tuning_of(options));
  if (options.blocks == 0 && tuning.blocks)
    plan.choices.push_back({"blocks", fmt::format("{}", *tuning.blocks),
                            tuning.blocks_measured ? kFastestMeasured : "as it was set",
                            !tuning.blocks_measured});
  return plan;
}

// What stands in the plan's choices of which plan it is.
Plan told(Plan plan, std::string reason, bool set) {
  const bool fused = plan.options.fusion == Fusion::full;
  plan.choices.insert(plan.choices.begin(),
                      {"fusion", fused ? "full, weights in tiles" : "none, weights in blocks",
                       std::move(reason), set});
  return plan;
}

Result<Plan> build_either(const GgufFile& file, const ModelSpec& spec, PlanOptions options) {
  LATHE_ASSIGN(const TuningOverrides tuning, parse_tuning(options.tuning));
  const bool named = options.fusion != Fusion::automatic;
  if (named || tuning.fusion) {
    if (!named) options.fusion = *tuning.fusion;
    LATHE_ASSIGN(Plan plan, build(file, spec, options));
    return told(std::move(plan), "as it was set", true);
  }
  std::string why = why_not_fused(options.gpu);
  if (why.empty()) {
    options.fusion = Fusion::full;
    Result<Plan> fused = build(file, spec, options);
    if (fused)
      return told(std::move(*fused),
                  "five kernels a layer, which the model and the GPU allow, are faster", false);
    // What was set is not to be passed over.
    PlanOptions without = options;
    without.tuning.clear();
    if (!tuning.kernels.empty() && build(file, spec, without)) return std::move(fused).error();
    why = fused.error().message;
  }
  options.fusion = Fusion::none;
  LATHE_ASSIGN(Plan plan, build(file, spec, options));
  plan.notes.push_back(kNotFused + why);
  return told(std::move(plan), why, false);
}

}  // namespace

Result<Plan> build_plan(const GgufFile& file, const ModelSpec& spec, const PlanOptions& options) {
  try {
    if (options.part != ModelPart{}) {
      // A part is of a model that has a plan as a whole: a tensor that nothing reads is found here.
      PlanOptions all = options;
      all.part = {};
      all.atoms.values.clear();  // are those of the part's layers
      LATHE_TRY(build_either(file, spec, all));
    }
    return build_either(file, spec, options);
  } catch (const std::bad_alloc&) {
    return Error{Code::out_of_memory, "not enough memory for the plan", {{"file", file.path()}}};
  }
}

Result<Plan> build_plan(const GgufFile& file, const PlanOptions& options) {
  LATHE_ASSIGN(const ModelSpec spec, read_model_spec(file));
  return build_plan(file, spec, options);
}

}  // namespace lathe
