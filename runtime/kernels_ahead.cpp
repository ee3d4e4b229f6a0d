// Owns the thread that builds kernels while weights go up.
#include "runtime/kernels_ahead.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace lathe {

KernelsAhead::KernelsAhead(DeviceImpl& device, std::vector<KernelKey> keys,
                           const SessionOptions& options)
    : device_(device), options_(options) {
  try {
    built_ = std::async(std::launch::async, [this, keys = std::move(keys)] {
               static_cast<void>(device_.prepare(keys, {}, [this] { return !wanted_; }));
               return building_.seconds();
             }).share();
  } catch (const std::system_error&) {
    // With fewer threads it only takes longer.
  }
}

KernelsAhead::~KernelsAhead() {
  wanted_ = false;
  if (built_.valid()) built_.wait();
}

Result<void> KernelsAhead::prepare(std::span<const KernelKey> keys) {
  const KernelCounts before = device_.counts();
  const Stopwatch waiting;
  const Result<void> prepared = device_.prepare(keys, options_.progress, options_.cancelled);
  wait_seconds_ += waiting.seconds();
  const KernelCounts after = device_.counts();
  if (after.built + after.from_disk != before.built + before.from_disk)
    loaded_seconds_ = building_.seconds();
  return prepared;
}

double KernelsAhead::build_seconds() const {
  return std::max({wait_seconds_, loaded_seconds_, built_.valid() ? built_.get() : 0.0});
}

}  // namespace lathe
