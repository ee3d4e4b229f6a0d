// Owns the measuring of one test on an open session: which tokens run, and what the clock counts.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "bench/common/energy_meter.h"
#include "bench/decode/test.h"
#include "lathe/library.h"

namespace lathe::bench {

struct Samples {
  std::vector<double> seconds;  // of each repetition
  double joules = 0;            // of all repetitions, if a meter was given
};

// What goes on while something is measured.
struct Watch {
  Progress progress;                  // never called while the clock runs
  std::function<bool()> interrupted;  // asked between repetitions: true ends the measuring early
};

class Measurement {
 public:
  // Positions from 0 to `depth` get filled by run() before the first test. `meter` may be null.
  Measurement(Session& session, int depth, const EnergyMeter* meter, const Watch& watch)
      : session_(session), depth_(depth), meter_(meter), watch_(watch) {}

  // Warms up, then adds so many samples.
  Result<void> run(const Test& test, int repetitions, Samples& samples);

 private:
  Result<void> fill();
  Result<void> warm_up(const Test& test, std::span<std::int32_t> tokens);
  Result<void> repeat(const Test& test, std::span<std::int32_t> tokens, Samples& samples);
  // From `depth` on, in seconds. `tokens` are read, or generated.
  Result<double> decode(const Test& test, std::span<std::int32_t> tokens);
  Result<void> check_tokens(std::span<const std::int32_t> tokens) const;

  Session& session_;
  const int depth_;
  const EnergyMeter* meter_;
  const Watch& watch_;
  std::int32_t next_ = 0;  // the token that follows the filled positions
};

// Weights, and the KV entries that attention reads at the mean of the test's positions.
double bytes_per_token(const Plan& plan, const Test& test);

}  // namespace lathe::bench
