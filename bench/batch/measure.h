// Owns what is measured of a batch.
#pragma once

#include <string>
#include <vector>

#include "bench/batch/options.h"
#include "lathe/runtime/drafts.h"

namespace lathe::bench::batch {

struct Row {
  std::string name;
  double tokens_per_second = 0;  // of all sequences
  double step_seconds = 0;
  double accepted = -1;  // share of the drafts; negative: there are none
};

// One sequence by a session.
Result<Row> measure_session(const std::shared_ptr<const GgufFile>& file, const Options& options);
// `sequences` that get a token each step.
Result<Row> measure_batch(Batch& batch, int sequences, const Options& options);
// `rows` tokens of one sequence in a step.
Result<Row> measure_verification(Batch& batch, int rows, const Options& options);
// One sequence behind a prompt that repeats itself.
Result<Row> measure_drafts(Batch& batch, int drafts, const Options& options);

}  // namespace lathe::bench::batch
