// Owns the order of everything that is asked for: models, executors, KV formats, depths, tests,
// and turns with a peer.
#pragma once

#include <functional>
#include <vector>

#include "bench/decode/measure.h"
#include "bench/decode/options.h"
#include "bench/decode/row.h"

namespace lathe::bench {

struct Events {
  Watch watch;
  std::function<void(const std::string& note)> note;
  std::function<void(const Error& error)> error;  // what cannot be measured; the rest goes on
};

// A session for each model, executor, KV format and depth, and on it the tests of that depth.
std::vector<Row> run_benchmark(const Options& options, const Events& events);

}  // namespace lathe::bench
