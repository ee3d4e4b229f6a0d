// Owns the measuring of what a submission costs that has no work.
#include "runtime/round_trip.h"

#include "codegen/stopwatch.h"
#include "runtime/device_memory.h"

namespace lathe {

Result<std::vector<double>> time_round_trips(const Context& context, CUstream stream, int times) {
  const Driver& driver = context.driver();
  LATHE_ASSIGN(const Event event, create_event(context, CU_EVENT_DEFAULT));
  std::vector<double> microseconds;
  microseconds.reserve(std::size_t(times));
  for (int i = 0; i < times; ++i) {
    const Stopwatch watch;
    LATHE_DRIVER_CALL(driver, cuEventRecord, event.get(), stream);
    LATHE_DRIVER_CALL(driver, cuStreamSynchronize, stream);
    microseconds.push_back(1e3 * watch.milliseconds());
  }
  return microseconds;
}

}  // namespace lathe
