// Owns the switch between stacks: a fiber is a function with its own stack that can pause itself
// in the middle and be resumed later, on the same operating system thread.
#pragma once

#include <cstddef>
#include <memory>

namespace lathe::emulation {

// Runs `entry(argument)` again and again: each time entry returns, the fiber pauses, and the next
// resume() calls it anew. So one stack serves many device threads.
class Fiber {
 public:
  using Entry = void (*)(void*);

  Fiber(Entry entry, void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the fiber until it pauses. Not from inside a fiber.
  void resume();
  // Called inside the fiber: gives control back to whoever resumed it.
  void pause();

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace lathe::emulation
