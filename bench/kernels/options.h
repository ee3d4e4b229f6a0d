// Owns the command line of bench_kernels.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/kernels/measure.h"
#include "bench/kernels/subjects.h"
#include "lathe/library.h"

namespace lathe::bench::kernels {

struct Options {
  std::vector<std::string> keys;  // named ones, in place of those of the models
  Selection selection;
  std::vector<int> depths = {4096};
  Repetitions repetitions;
  // Each is measured for itself: an order of preference for one device.
  std::vector<std::vector<Route>> routes;
  DeviceOptions device;

  bool list = false;
  bool csv = false;
  bool quiet = false;
  std::string json;     // written there too
  std::string from;     // a report to be read in place of measuring
  std::string compare;  // a report from before
  double tolerance = 0.05;
};

// The exit code if there is nothing left to do.
std::optional<int> parse_options(int argc, const char* const* argv, Options& options);

}  // namespace lathe::bench::kernels
