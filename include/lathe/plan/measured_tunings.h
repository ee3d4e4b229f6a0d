// Owns the table of tunings that were measured: with which words (docs/tuning.md) a class of models
// decodes faster on a GPU than by the rules. bench_tune makes its rows, a session looks its model
// up.
//
// Threads: callable from any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/codegen/format.h"
#include "lathe/codegen/result.h"
#include "lathe/plan/gguf.h"
#include "lathe/plan/gpu_profile.h"
#include "lathe/plan/model_spec.h"

namespace lathe {

// Models that are taken to decode alike: whatever else differs (vocabulary, heads, KV cache, depth)
// was measured with one of them.
struct TuningClass {
  int compute = 0;  // as in GpuProfile
  int multiprocessors = 0;
  std::string family;  // ModelSpec::architecture
  int hidden = 0;
  int ffn = 0;
  Format weights = Format::f32;  // that most bytes of the file's matrices have

  friend bool operator==(const TuningClass&, const TuningClass&) = default;
};
TuningClass tuning_class(const GgufFile& file, const ModelSpec& spec, const GpuProfile& gpu);

struct MeasuredTuning {
  TuningClass of;
  std::string words;    // as PlanOptions::tuning, without `fusion`; not empty
  double rate = 0;      // tokens/s with them
  double by_rules = 0;  // tokens/s without, in the same run

  friend bool operator==(const MeasuredTuning&, const MeasuredTuning&) = default;
};

// Those that the library brings along.
Result<std::span<const MeasuredTuning>> measured_tunings();

// A line for each: compute, multiprocessors, family, hidden, ffn, weights, words, both rates, with
// blanks between them. Lines that begin with # say nothing. invalid_argument: a sentence that names
// the line; a class that comes twice is one.
Result<std::vector<MeasuredTuning>> parse_measured_tunings(std::string_view text);
// The same of a file, which may be empty. io: there is none, or it cannot be read.
Result<std::vector<MeasuredTuning>> read_measured_tunings(const std::string& path);
std::string measured_tunings_text(std::span<const MeasuredTuning> tunings);

// Null where the class was not measured.
const MeasuredTuning* find_tuning(std::span<const MeasuredTuning> tunings, const TuningClass& of);

}  // namespace lathe
