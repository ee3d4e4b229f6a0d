// Owns the applying of the tuning rules and the telling of what they chose.
#include "plan/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lathe/codegen/kernel_table.h"
#include "plan/tuning.h"

namespace lathe {
namespace {

struct Given {
  const GpuProfile& gpu;
  int positions;  // that an attention sees, at most
  bool flagged;   // the rule's flag is set already
};

std::string gemv(KernelKey& key, const Given&) {
  const GemvTuning tuning = gemv_tuning(key.n, key.k);
  key.warps = tuning.warps;
  key.rows = tuning.rows;
  return fmt::format("the fastest measured for {} rows of {}", key.n, key.k);
}

std::string norm(KernelKey& key, const Given&) {
  key.warps = rms_norm_warps(key.k);
  return fmt::format("four of {} values a thread, at most 32 warps", key.k);
}

std::string atoms(KernelKey& key, const Given&) {
  key.warps = kAtomWarps;
  return "a block for each key and each value, of sixteen warps; not measured";
}

std::string attention(KernelKey& key, const Given& given) {
  key.splits = attention_splits(key.kv_heads, given.positions, given.gpu.multiprocessors);
  return fmt::format(
      "two blocks for each of {} multiprocessors, {} KV heads, and at least 64 of {} positions a "
      "split",
      given.gpu.multiprocessors, key.kv_heads, given.positions);
}

std::string top_k(KernelKey& key, const Given&) {
  key.splits = vocabulary_splits(key.n);
  key.warps = top_k_warps(key.n, key.splits);
  return fmt::format("at most 1024 of {} logits a split, but no more than 128 splits; 64 a warp",
                     key.n);
}

std::string sample(KernelKey& key, const Given&) {
  key.warps = sample_warps(key.splits);
  return "a warp for each part's candidates, at most 16";
}

// Fewer stages where a block has less memory than those that kernels are made for.
std::string matvec(KernelKey& key, const Given& given) {
  key.blocks = given.gpu.multiprocessors;
  key.warps = kFusedWarps;
  key.stages = matvec_stages(key);
  const auto fits = [&] {
    return !check_key(key) ||
           int(row(key.type).geometry(key).shared_bytes) <= given.gpu.block_shared_bytes;
  };
  while (key.stages > 1 && !fits()) --key.stages;
  return fmt::format(
      "a block for each of {} multiprocessors, 255 registers a thread, as many tiles under way as "
      "{} bytes of shared memory hold",
      given.gpu.multiprocessors, given.gpu.block_shared_bytes);
}

std::string attend(KernelKey& key, const Given& given) {
  key.warps = kFusedWarps;
  key.splits = std::clamp(given.gpu.multiprocessors / key.kv_heads, 1, kMaxAttentionSplits);
  const bool by_matrix = attends_by_matrix(key, given.positions);
  if (!given.flagged) key.matrix = by_matrix;
  std::string reason = fmt::format("a block for each of {} multiprocessors, {} KV heads",
                                   given.gpu.multiprocessors, key.kv_heads);
  if (by_matrix)
    reason += fmt::format("; by the matrix units, for a token may see {} positions, more than {}",
                          given.positions, kMatrixPositions);
  return reason;
}

// With blocks: of few tokens.
std::string matmul(KernelKey& key, const Given& given) {
  key.warps = kFusedWarps;
  if (key.blocks == 0) return "a block for eight row tiles and 128 tokens";
  if (share_rows(key, given.gpu))
    return fmt::format(
        "no more blocks than {} multiprocessors, each with one to itself and rows of its own",
        given.gpu.multiprocessors);
  share_evenly(key, given.gpu);
  return "two blocks a multiprocessor, which share the work evenly";
}

std::string append_tokens(KernelKey& key, const Given&) {
  key.warps = kAppendWarps;
  return "a warp for a head, whatever the model";
}

std::string attend_tokens(KernelKey& key, const Given&) {
  key.warps = kFusedWarps;
  return "255 registers a thread";
}

std::string attend_rows(KernelKey& key, const Given& given) {
  KernelKey by_matrix = key;
  by_matrix.matrix = true;
  by_matrix.warps = kMatrixRowWarps;
  by_matrix.blocks = given.gpu.multiprocessors * kBlocksPerMultiprocessor;
  if (check_key(by_matrix)) {
    key = by_matrix;
    return "by the matrix units, as many blocks as two a multiprocessor; splits as when a single "
           "sequence decodes";
  }
  key.warps = kAttendWarps;
  return "the fastest measured; splits as when a single sequence decodes";
}

using Field = int KernelKey::*;

struct Rule {
  KernelType type;
  // Sets the chosen fields; the reason.
  std::string (*choose)(KernelKey&, const Given&);
  std::array<Field, 4> chosen;
  std::array<Field, 2> settable = {};  // those that may be set instead
  bool KernelKey::*flag = nullptr;     // may be set too, which the choice then goes by
};

constexpr Field kWarps = &KernelKey::warps, kRows = &KernelKey::rows, kSplits = &KernelKey::splits,
                kBlocks = &KernelKey::blocks, kStages = &KernelKey::stages;
constexpr std::array kRules = {
    Rule{KernelType::gemv, gemv, {kWarps, kRows}, {kWarps, kRows}},
    Rule{KernelType::rms_norm, norm, {kWarps}, {kWarps}},
    Rule{KernelType::kv_append, atoms, {kWarps}},
    Rule{KernelType::attention, attention, {kSplits}, {kSplits}},
    Rule{KernelType::top_k, top_k, {kSplits, kWarps}, {kSplits, kWarps}},
    Rule{KernelType::sample, sample, {kWarps}, {kWarps}},
    Rule{KernelType::matvec,
         matvec,
         {kBlocks, kWarps, kStages},
         {kBlocks, kStages},
         &KernelKey::paired},
    Rule{KernelType::attend, attend, {kSplits, kWarps}, {kSplits}, &KernelKey::matrix},
    Rule{KernelType::norm_tokens, norm, {kWarps}, {kWarps}},
    Rule{KernelType::matmul, matmul, {kBlocks, kSplits, kStages, kWarps}},
    Rule{KernelType::append_tokens, append_tokens, {kWarps}},
    Rule{KernelType::attend_tokens, attend_tokens, {kWarps}},
    Rule{KernelType::attend_rows, attend_rows, {kWarps, kBlocks}},
};

const Rule* rule_of(KernelType type) {
  const auto found = std::ranges::find(kRules, type, &Rule::type);
  return found == kRules.end() ? nullptr : &*found;
}

// "warps 8, rows 2".
std::string values_text(const Rule& rule, const KernelKey& key) {
  std::string text;
  for (const Field chosen : rule.chosen) {
    if (!chosen) continue;
    const auto field = std::ranges::find(key_fields(), chosen, &KeyField::integer);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", field->name, key.*chosen);
  }
  return text;
}

Result<void> check_on(const KernelKey& key, const GpuProfile& gpu) {
  LATHE_TRY(row(key.type).check(key));
  const int bytes = int(row(key.type).geometry(key).shared_bytes);
  if (bytes <= gpu.block_shared_bytes) return {};
  return Error{Code::invalid_argument,
               fmt::format("it takes {} bytes of shared memory, and a block has {}", bytes,
                           gpu.block_shared_bytes),
               {}};
}

Error not_possible(const TuningOverride& given, const KernelKey& shape, const Error& why) {
  return {Code::invalid_argument,
          fmt::format("the tuning '{}' is not possible for {}: {}", given.text(), shape.text(),
                      why.message),
          {}};
}

}  // namespace

bool is_tunable(KernelType type, const KeyField& field) {
  const Rule* rule = rule_of(type);
  if (!rule) return false;
  return (field.integer && std::ranges::count(rule->settable, field.integer) > 0) ||
         (field.flag && field.flag == rule->flag);
}

Result<Tuned> select_tuning(const KernelKey& shape, const GpuProfile& gpu,
                            std::span<const TuningOverride> set, int positions) {
  const Rule* rule = rule_of(shape.type);
  if (!rule) return Error{Code::internal, fmt::format("{} is not tuned", row(shape.type).name), {}};
  Tuned out{shape, {}};
  const TuningOverride* flag = nullptr;
  bool measured = false;
  const auto take = [&](const TuningOverride& given) {
    (given.measured ? measured : out.told.set) = true;
  };
  for (const TuningOverride& given : set)
    if (given.type == shape.type && given.field->flag) {
      flag = &given;
      out.key.*given.field->flag = given.value != 0;
      take(given);
    }
  out.told.reason = rule->choose(out.key, {gpu, positions, flag != nullptr});
  const std::string chosen = values_text(*rule, out.key);
  const Result<void> possible = check_on(out.key, gpu);
  if (flag && !possible) {
    KernelKey without = shape;
    rule->choose(without, {gpu, positions, false});
    if (check_on(without, gpu)) return not_possible(*flag, shape, possible.error());
  }
  for (const TuningOverride& given : set) {
    if (given.type != shape.type || given.field->flag) continue;
    take(given);
    out.key.*given.field->integer = given.value;
    const Result<void> valid = check_on(out.key, gpu);
    if (possible && !valid) return not_possible(given, shape, valid.error());
  }
  out.told.what = out.key.text();
  out.told.value = values_text(*rule, out.key);
  if (out.told.set || measured)
    out.told.reason =
        fmt::format("{}; the rule says {}: {}", out.told.set ? "as it was set" : kFastestMeasured,
                    chosen, out.told.reason);
  return out;
}

void begin_early(std::vector<Step>& steps, const GpuProfile& gpu) {
  const bool all = gpu.compute >= kEarlyCompute && std::ranges::all_of(steps, [](const Step& step) {
                     return row(step.key.type).uses("early");
                   });
  for (Step& step : steps) step.key.early = all;
}

std::string why_not_fused(const GpuProfile& gpu) {
  const KernelRow& products = row(KernelType::matvec);
  std::string lacks;
  if (gpu.compute < products.min_compute)
    lacks = fmt::format("sm_{} has no {}", gpu.compute, products.min_compute_reason);
  else if (gpu.block_shared_bytes < kMostSharedBytes)
    lacks = fmt::format("a block of sm_{} has {} bytes of shared memory, and they use {}",
                        gpu.compute, gpu.block_shared_bytes, kMostSharedBytes);
  return lacks;
}

Selector::Selector(const PlanOptions& options) : gpu_(options.gpu) {
  if (auto parsed = tuning_of(options))
    set_ = std::move(parsed->kernels);
  else
    refused_ = parsed.error();
  if (options.attention_splits == 0) return;
  const auto splits = std::ranges::find(key_fields(), kSplits, &KeyField::integer);
  for (const KernelType type : {KernelType::attention, KernelType::attend}) {
    std::erase_if(set_, [&](const TuningOverride& given) {
      return given.type == type && given.field->integer == kSplits;
    });
    set_.insert(set_.begin(), {type, &*splits, options.attention_splits});
  }
}

KernelKey Selector::tuned(const KernelKey& shape, int positions) {
  const auto [known, is_new] = tuned_.try_emplace({shape, positions}, shape);
  if (!is_new) return known->second;
  Result<Tuned> tuned = select_tuning(shape, gpu_, set_, positions);
  // What was measured follows what was set: from the end on, until the rest is possible.
  std::vector<TuningOverride> left = set_;
  while (!tuned && !left.empty() && left.back().measured) {
    left.pop_back();
    tuned = select_tuning(shape, gpu_, left, positions);
  }
  if (!tuned) {
    if (refused_) refused_ = tuned.error();
    return shape;
  }
  if (std::ranges::find(told_, tuned->told) == told_.end()) told_.push_back(tuned->told);
  return known->second = tuned->key;
}

Result<void> Selector::finish(Plan& plan) && {
  plan.choices = std::move(told_);
  return std::move(refused_);
}

}  // namespace lathe
