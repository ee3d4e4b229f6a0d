// Owns the order of everything that is measured: routes, then kernels, then positions.
#pragma once

#include <functional>
#include <vector>

#include "bench/kernels/measure.h"
#include "bench/kernels/options.h"
#include "bench/kernels/row.h"
#include "bench/kernels/subjects.h"

namespace lathe::bench::kernels {

struct Events {
  Progress progress;                  // never called while something is timed
  std::function<bool()> interrupted;  // asked between kernels
  std::function<void(const std::string& note)> note;
  std::function<void(const Error& error)> error;  // what cannot be measured; the rest goes on
};

// On one device, all kernels its routes cover, at each position where they look at one.
void measure_all(Workbench& bench, const std::vector<Subject>& subjects, const Options& options,
                 const std::vector<Route>& routes, const Events& events, Report& report);

// A device for each of the options' routes. The error says why there is none.
Result<Report> run_benchmark(const Options& options, const Events& events);

// What run_benchmark() would measure, on this machine's GPU or else on an H200.
Result<std::vector<Subject>> listed_subjects(const Options& options, const Events& events);

}  // namespace lathe::bench::kernels
