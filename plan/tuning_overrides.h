// Owns what is set in place of a choice: its text and what may be set at all.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/codegen/kernel_key.h"
#include "lathe/plan/plan.h"

namespace lathe {

struct TuningOverride {
  KernelType type = KernelType::gemv;
  const KeyField* field = nullptr;
  int value = 0;
  bool measured = false;  // and not set: it gives way to whoever sets another value

  std::string text() const;  // "gemv.warps=4"
  // The same choice as this one.
  bool names(const TuningOverride& other) const {
    return type == other.type && field == other.field;
  }
};

struct TuningOverrides {
  std::vector<TuningOverride> kernels;  // each field of a type once
  std::optional<Fusion> fusion;
  std::optional<int> blocks;  // in place of the GPU's multiprocessors
  bool blocks_measured = false;
  std::string executor;  // a name that the runtime knows or refuses; empty: not set
  std::string measured_executor;
};

// Of PlanOptions::tuning: words of the form TYPE.FIELD=NUMBER, fusion=none|full, executor=NAME or
// blocks=NUMBER with commas between them. invalid_argument: a sentence that names the word and, of
// a name that is unknown, the nearest ones; detail "known" has all.
Result<TuningOverrides> parse_tuning(std::string_view text);

// PlanOptions::tuning, and of PlanOptions::measured the words whose names it has not.
Result<TuningOverrides> tuning_of(const PlanOptions& options);

}  // namespace lathe
