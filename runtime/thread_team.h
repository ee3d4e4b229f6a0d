// Owns a fixed team of threads that run one function together, again and again.
#pragma once

#include <atomic>
#include <barrier>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

namespace lathe {

// The calling thread is part 0 of the team. One caller at a time.
class ThreadTeam {
 public:
  using Work = void (*)(void* state, int part);

  // Has fewer parts than asked for where the system refuses to start that many threads.
  explicit ThreadTeam(int parts) {
    threads_.reserve(parts - 1);
    try {
      for (int part = 1; part < parts; ++part) {
        threads_.emplace_back([this, part] { serve(part); });
      }
    } catch (const std::system_error&) {
    }
    barrier_.emplace(this->parts());
    ready_.store(true);
    ready_.notify_all();
  }
  ~ThreadTeam() {
    run(nullptr, nullptr);
    for (std::thread& thread : threads_) thread.join();
  }
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int parts() const { return int(threads_.size()) + 1; }

  // Runs work(state, part) on every thread and returns when all have finished. Allocates nothing.
  void run(Work work, void* state) {
    work_ = work;
    state_ = state;
    meet();  // starts them
    if (!work) return;
    work(state, 0);
    meet();
  }
  // Inside work: waits for the whole team.
  void meet() { barrier_->arrive_and_wait(); }

 private:
  void serve(int part) {
    ready_.wait(false);
    for (;;) {
      meet();
      if (!work_) return;
      work_(state_, part);
      meet();
    }
  }

  std::atomic<bool> ready_ = false;
  std::optional<std::barrier<>> barrier_;  // made when the number of threads is known
  Work work_ = nullptr;
  void* state_ = nullptr;
  std::vector<std::thread> threads_;
};

}  // namespace lathe
