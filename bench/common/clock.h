// Owns the clock by which programs measure how long the host waits.
#pragma once

#include <chrono>

namespace lathe::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace lathe::bench
