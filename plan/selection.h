// Owns the one rule by which kernels of a plan get their tuning, with the reason for each.
//
// Whatever is chosen is valid for any shape and any GPU, and changes speed only. Measured rules are
// in plan/tuning.h; this is what applies them, takes what was set instead, and tells both.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lathe/codegen/kernel_key.h"
#include "lathe/plan/gpu_profile.h"
#include "lathe/plan/plan.h"
#include "plan/tuning_overrides.h"

namespace lathe {

// Whether this field of the type's keys is chosen, and may be set instead.
bool is_tunable(KernelType type, const KeyField& field);

struct Tuned {
  KernelKey key;
  Selected told;
};

// The key with its tuning. `positions`: of the KV cache that an attention sees at most.
// invalid_argument: what was set is not possible for this key.
Result<Tuned> select_tuning(const KernelKey& shape, const GpuProfile& gpu,
                            std::span<const TuningOverride> set, int positions);

// Lets all kernels of a plan begin early, where all can (KernelKey::early), or none: those of a
// graph must all wait by themselves, or some begin before their turn.
void begin_early(std::vector<Step>& steps, const GpuProfile& gpu);

// Which plan a GPU takes: empty where it can run the kernels of Fusion::full, else what it lacks.
std::string why_not_fused(const GpuProfile& gpu);

// How a reason begins of what the table of measured tunings has.
inline constexpr const char* kFastestMeasured = "the fastest measured for this model on this GPU";

// How a note begins that says why a plan is not the fused one.
inline constexpr const char* kNotFused = "a kernel for each operation, not five a layer: ";

// The choices of one plan, each made and told once, however many layers have it.
class Selector {
 public:
  // `options` as a plan has them: resolved and checked.
  explicit Selector(const PlanOptions& options);

  KernelKey tuned(const KernelKey& shape, int positions = 0);
  // Moves what was chosen to the plan; the first refusal, where there was one.
  Result<void> finish(Plan& plan) &&;

 private:
  GpuProfile gpu_;
  std::vector<TuningOverride> set_;
  std::map<std::pair<KernelKey, int>, KernelKey> tuned_;  // by shape and positions
  std::vector<Selected> told_;
  Result<void> refused_;
};

}  // namespace lathe
