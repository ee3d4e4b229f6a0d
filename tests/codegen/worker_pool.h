// Owns processes that share out numbered work, so that one that dies or hangs costs its own number
// only, which is told.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace lathe::testing {

struct PoolOptions {
  int workers = 1;
  std::int64_t first = 0, past = 0;
  std::chrono::seconds most{3600};      // no number is begun later
  std::chrono::seconds most_each{300};  // after which a number's process is ended
};

struct PoolOutcome {
  std::int64_t done = 0;  // numbers, those of lost processes among them
  std::int64_t lost = 0;  // numbers, and processes that died before they began one
};

// Calls make_work() once in each process, and what it returns with each of the process's numbers.
// It must have started no thread. A process ends after a number for which work returns false, and
// another goes on in its place. on_lost is told of numbers whose process died, with how;
// on_progress about once a second. Both are called in this process.
PoolOutcome share_out(const PoolOptions& options,
                      const std::function<std::function<bool(std::int64_t)>(int)>& make_work,
                      const std::function<void(std::int64_t, const std::string&)>& on_lost,
                      const std::function<void(std::int64_t)>& on_progress);

}  // namespace lathe::testing
