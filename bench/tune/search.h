// Owns the search for the words with which a model decodes faster than by the rules.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lathe/codegen/result.h"

namespace lathe::bench::tune {

// Something that can be set, and to what it is worth setting it.
struct Axis {
  const char* name;      // as docs/tuning.md has it
  const char* executor;  // that it matters to; null: to all
  std::vector<std::string> values;
};
// Executor first: the others are worth trying only where they matter to it. What is best by the
// length of the context is not among them: a table has one tuning for all lengths.
std::vector<Axis> axes(int multiprocessors);

struct Trial {
  std::string words;
  std::string executor;
  double rate = 0;     // tokens/s, median
  double slowest = 0;  // of all repetitions
};

// Decodes with these words; nothing where they change nothing of what is chosen with `beside`.
using Measure = std::function<Result<std::optional<Trial>>(const std::string& words,
                                                           const std::string& beside)>;

struct Found {
  std::string words;    // empty: nothing is faster than the rules
  double rate = 0;      // tokens/s with them
  double by_rules = 0;  // and without, just before or just after
};

// A win counts that is greater than this, and of which no repetition is as slow as the median of
// what it replaces.
inline constexpr double kLeastGain = 1.01;

// Takes the axes in their order, each value beside the best so far, and what is left at the end
// once more between the rules and the rules. `told` hears each trial with the rate of the rules.
Result<Found> search(std::span<const Axis> axes, const Measure& measure,
                     const std::function<void(const Trial&, double by_rules)>& told);

}  // namespace lathe::bench::tune
