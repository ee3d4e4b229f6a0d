// Owns the forking, the watching and the ending of a pool's processes.
#include "tests/codegen/worker_pool.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

namespace lathe::testing {
namespace {

using Clock = std::chrono::steady_clock;

// What a worker tells its parent, in memory that they share.
struct Slot {
  std::atomic<std::int64_t> at{-1};    // the number it works at
  std::atomic<std::int64_t> begun{0};  // when, by the clock's count
  std::atomic<std::int64_t> done{0};   // by all processes of this slot
};

struct Worker {
  pid_t process = -1;
  std::int64_t next = 0;  // where the process began
};

void work_on(Slot& slot, int index, std::int64_t next, const PoolOptions& options,
             Clock::time_point end,
             const std::function<std::function<bool(std::int64_t)>(int)>& make_work) {
  const auto work = make_work(index);
  for (; next < options.past && Clock::now() < end; next += options.workers) {
    slot.begun = Clock::now().time_since_epoch().count();
    slot.at = next;
    const bool goes_on = work(next);
    ++slot.done;
    slot.at = -1;
    if (!goes_on) _exit(2);
  }
  _exit(0);
}

std::string death(int status, bool ended) {
  if (ended) return "took too long";
  if (WIFSIGNALED(status)) return std::string("died: ") + strsignal(WTERMSIG(status));
  return "ended its process with status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

PoolOutcome share_out(const PoolOptions& options,
                      const std::function<std::function<bool(std::int64_t)>(int)>& make_work,
                      const std::function<void(std::int64_t, const std::string&)>& on_lost,
                      const std::function<void(std::int64_t)>& on_progress) {
  const auto count = static_cast<std::size_t>(options.workers);
  void* memory = mmap(nullptr, count * sizeof(Slot), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  Slot* slots = static_cast<Slot*>(memory);
  const Clock::time_point end = Clock::now() + options.most;
  std::vector<Worker> workers(count);
  PoolOutcome out;
  const auto start = [&](std::size_t i) {
    workers[i].process = fork();
    if (workers[i].process == 0)
      work_on(slots[i], static_cast<int>(i), workers[i].next, options, end, make_work);
  };
  for (std::size_t i = 0; i < count; ++i) {
    new (&slots[i]) Slot;
    workers[i].next = options.first + static_cast<std::int64_t>(i);
    start(i);
  }
  std::size_t left = count;
  for (Clock::time_point told = Clock::now(); left > 0;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (std::size_t i = 0; i < count; ++i) {
      if (workers[i].process < 0) continue;
      const std::int64_t at = slots[i].at;
      const Clock::duration spent =
          Clock::now().time_since_epoch() - Clock::duration(slots[i].begun);
      const bool late = at >= 0 && spent > options.most_each;
      if (late) kill(workers[i].process, SIGKILL);
      int status = 0;
      if (waitpid(workers[i].process, &status, late ? 0 : WNOHANG) != workers[i].process) continue;
      workers[i].process = -1;
      const std::int64_t last = slots[i].at.exchange(-1);
      // Dead at a number, or before its first; ended after one; or done with all.
      if (last >= 0) {
        ++out.lost;
        ++slots[i].done;
        on_lost(last, death(status, late));
      }
      const bool again = last >= 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 2);
      workers[i].next = options.first + static_cast<std::int64_t>(i) +
                        slots[i].done * static_cast<std::int64_t>(count);
      if (again && workers[i].next < options.past && Clock::now() < end) {
        start(i);
      } else {
        --left;
        if (last < 0 && status != 0 && !again) {
          ++out.lost;  // a whole process, before its first number or between two
          on_lost(workers[i].next, death(status, false));
        }
      }
    }
    out.done = 0;
    for (std::size_t i = 0; i < count; ++i) out.done += slots[i].done;
    if (Clock::now() - told > std::chrono::seconds(1)) {
      told = Clock::now();
      on_progress(out.done);
    }
  }
  munmap(memory, count * sizeof(Slot));
  return out;
}

}  // namespace lathe::testing
