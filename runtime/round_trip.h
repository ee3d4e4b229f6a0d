// Owns the measuring of what a submission costs that has no work.
#pragma once

#include <vector>

#include "runtime/context.h"

namespace lathe {

// Microseconds of each of so many: an event is put on the stream, and the stream waited for, which
// must have nothing left to do. Wants the context current.
Result<std::vector<double>> time_round_trips(const Context& context, CUstream stream, int times);

}  // namespace lathe
