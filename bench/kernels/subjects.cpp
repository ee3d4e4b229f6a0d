// Owns the plans, and the merging of what they have in common.
#include "bench/kernels/subjects.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <regex>
#include <unordered_map>

namespace lathe::bench::kernels {

namespace {

constexpr const char* kNames[] = {"decode", "prompt", "batch", "single", "weights"};

class Subjects {
 public:
  Subjects(const Target& target, int multiprocessors, const Selection& selection)
      : target_(target), multiprocessors_(multiprocessors), selection_(selection) {}

  Result<void> add(const Model& model, Stage stage) {
    LATHE_ASSIGN(const std::vector<KernelKey> keys, keys_of(model, stage));
    const std::string use = fmt::format("{} {}", model.name, stage_name(stage));
    for (const KernelKey& key : keys) {
      const auto [place, is_new] = index_.emplace(key, subjects_.size());
      if (is_new) subjects_.push_back({key, ""});
      std::string& uses = subjects_[place->second].uses;
      uses += (uses.empty() ? "" : ", ") + use;
    }
    return {};
  }

  std::vector<Subject> take() { return std::move(subjects_); }

 private:
  Result<std::vector<KernelKey>> keys_of(const Model& model, Stage stage) const {
    PlanOptions options = selection_.plan;
    options.context = std::min(options.context, model.context);
    options.blocks = multiprocessors_;
    options.fusion = stage == Stage::single ? Fusion::none : Fusion::full;
    if (options.fusion == Fusion::full && target_.compute < row(KernelType::matvec).min_compute)
      return Error{Code::not_eligible,
                   fmt::format("{} lacks the instructions of fused kernels", target_.name()),
                   {}};
    LATHE_ASSIGN(const Plan plan, build_plan(*file_of(model, selection_.mix), options));
    if (stage == Stage::weights) return retile_keys(plan);
    if (stage == Stage::batch) {
      LATHE_ASSIGN(const BatchPlan batch, build_batch_plan(plan, kMostBatchRows));
      return batch.plan.distinct_keys();
    }
    if (stage != Stage::prompt) return plan.distinct_keys();
    LATHE_ASSIGN(const PrefillPlan prompt, build_prefill_plan(plan, multiplies_in_groups(target_)));
    return prompt.plan.distinct_keys();
  }

  static std::vector<KernelKey> retile_keys(const Plan& plan) {
    std::vector<KernelKey> keys;
    for (const WeightSlot& slot : plan.weights) {
      if (slot.layout != Layout::tiles) continue;
      const KernelKey key = slot.retile_key();
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
    }
    return keys;
  }

  const Target target_;
  const int multiprocessors_;
  const Selection& selection_;
  std::vector<Subject> subjects_;
  std::unordered_map<KernelKey, std::size_t> index_;
};

Result<std::regex> parsed(const std::string& filter) {
  try {
    return std::regex(filter);
  } catch (const std::regex_error& error) {
    return Error{Code::invalid_argument,
                 fmt::format("'{}' is no regular expression: {}", filter, error.what()),
                 {}};
  }
}

}  // namespace

const char* stage_name(Stage stage) {
  return kNames[static_cast<std::size_t>(stage)];
}

Result<Stage> stage_by_name(std::string_view name) {
  for (Stage stage : kStages)
    if (name == stage_name(stage)) return stage;
  return Error{Code::not_found,
               fmt::format("there is no plan '{}'; known: {}", name, fmt::join(kNames, ", ")),
               {}};
}

Result<std::vector<Subject>> subjects_of(const Selection& selection, const Target& target,
                                         int multiprocessors,
                                         const std::function<void(const std::string&)>& note) {
  LATHE_ASSIGN(const std::regex filter, parsed(selection.filter));
  Subjects subjects(target, multiprocessors, selection);
  for (Stage stage : selection.stages) {
    for (const Model* model : selection.models) {
      if (const Result<void> added = subjects.add(*model, stage); !added)
        note(fmt::format("{} {} is left out: {}", model->name, stage_name(stage),
                         added.error().message));
    }
  }
  std::vector<Subject> all = subjects.take();
  std::erase_if(
      all, [&](const Subject& subject) { return !std::regex_search(subject.key.text(), filter); });
  if (!all.empty()) return all;
  return Error{Code::not_found, "no kernel of these plans is left to be measured", {}};
}

Result<std::vector<Subject>> named_subjects(const std::vector<std::string>& keys) {
  std::vector<Subject> subjects;
  for (const std::string& text : keys) {
    LATHE_ASSIGN(const KernelKey key, parse_key(text));
    LATHE_TRY(check_key(key));
    subjects.push_back({key, "named"});
  }
  return subjects;
}

}  // namespace lathe::bench::kernels
