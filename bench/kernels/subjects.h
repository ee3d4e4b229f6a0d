// Owns which kernels are measured: those of the models' plans, each once, with where they come
// from.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/kernels/models.h"
#include "lathe/library.h"

namespace lathe::bench::kernels {

// The plans of a model.
enum class Stage : std::uint8_t {
  decode,   // fused kernels
  prompt,   // of a chunk of tokens
  batch,    // of a token for each of several sequences
  single,   // one for each operation, as PlanOptions::fusion none
  weights,  // tiles made of a file's blocks
};
inline constexpr Stage kStages[] = {Stage::decode, Stage::prompt, Stage::batch, Stage::single,
                                    Stage::weights};
const char* stage_name(Stage stage);
Result<Stage> stage_by_name(std::string_view name);

struct Subject {
  KernelKey key;
  std::string uses;  // "llama-3.1-8b decode, qwen3-8b decode"
};

struct Selection {
  std::vector<const Model*> models;
  std::vector<Stage> stages;
  Mix mix;
  PlanOptions plan;    // the context of all; fusion and blocks do not count
  std::string filter;  // a regular expression that is to be found in the key; empty: all
};

// For a device with so many multiprocessors. A plan that cannot be had is a note.
Result<std::vector<Subject>> subjects_of(const Selection& selection, const Target& target,
                                         int multiprocessors,
                                         const std::function<void(const std::string&)>& note);
// The same of keys that were named.
Result<std::vector<Subject>> named_subjects(const std::vector<std::string>& keys);

}  // namespace lathe::bench::kernels
