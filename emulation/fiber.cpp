// Owns the stacks and the switch: a few lines of assembly on x86-64, ucontext elsewhere (it makes
// a system call per switch, twenty times slower). Tells the sanitizers of every switch.
#include "emulation/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

#if defined(__has_feature)
#define LATHE_HAS_FEATURE(x) __has_feature(x)
#else
#define LATHE_HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || LATHE_HAS_FEATURE(address_sanitizer)
#define LATHE_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define LATHE_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__) || LATHE_HAS_FEATURE(thread_sanitizer)
#define LATHE_TSAN 1
#include <sanitizer/tsan_interface.h>
#else
#define LATHE_TSAN 0
#endif
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace lathe::emulation {
namespace {

constexpr std::size_t kGuard = 4096;
// Unoptimized and instrumented frames of the larger ops take tens of kilobytes.
constexpr std::size_t kStack = LATHE_ASAN ? 256 * 1024 : 128 * 1024;

}  // namespace

#if LATHE_ASAN
// clang's default is a second stack beside each, to find uses of a frame after its return: each of
// the thousands of fibers would have one of megabytes.
extern "C" const char* __asan_default_options() {
  return "detect_stack_use_after_return=0";
}
#endif

#if defined(__x86_64__)
// Saves the registers a function must keep, stores the stack pointer in *save and continues where
// `to` was saved.
extern "C" void lathe_switch_stack(void** save, void* to);
__asm__(
    ".text\n"
    ".globl lathe_switch_stack\n"
    ".type lathe_switch_stack, @function\n"
    "lathe_switch_stack:\n"
    "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
    "  mov %rsp, (%rdi)\n"
    "  mov %rsi, %rsp\n"
    "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
    "  ret\n"
    ".size lathe_switch_stack, . - lathe_switch_stack\n");
#endif

struct Fiber::State {
  Entry entry;
  void* argument;
  unsigned char* memory;  // a guard page, then the stack
#if defined(__x86_64__)
  void* fiber = nullptr;  // stack pointers while not running
  void* caller = nullptr;
#else
  ucontext_t fiber, caller;
#endif
#if LATHE_ASAN
  void* fiber_fake = nullptr;
  void* caller_fake = nullptr;
  const void* caller_stack = nullptr;
  std::size_t caller_size = 0;
#endif
#if LATHE_TSAN
  void* fiber_tsan = __tsan_create_fiber(0);
  void* caller_tsan = nullptr;
#endif

  unsigned char* stack() const {
    return memory + kGuard;
  }

  void to_fiber() {
#if LATHE_ASAN
    __sanitizer_start_switch_fiber(&caller_fake, stack(), kStack);
#endif
#if LATHE_TSAN
    caller_tsan = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber_tsan, 0);
#endif
#if defined(__x86_64__)
    lathe_switch_stack(&caller, fiber);
#else
    swapcontext(&caller, &fiber);
#endif
#if LATHE_ASAN
    __sanitizer_finish_switch_fiber(caller_fake, nullptr, nullptr);
#endif
  }

  void to_caller() {
#if LATHE_ASAN
    __sanitizer_start_switch_fiber(&fiber_fake, caller_stack, caller_size);
#endif
#if LATHE_TSAN
    __tsan_switch_to_fiber(caller_tsan, 0);
#endif
#if defined(__x86_64__)
    lathe_switch_stack(&fiber, caller);
#else
    swapcontext(&fiber, &caller);
#endif
    arrived();
  }

  void arrived() {
#if LATHE_ASAN
    __sanitizer_finish_switch_fiber(fiber_fake, &caller_stack, &caller_size);
#endif
  }

  [[noreturn]] void run() {
    arrived();
    for (;;) {
      entry(argument);
      to_caller();
    }
  }
};

namespace {

// The state of the fiber that starts for the first time: a new stack has no argument registers.
thread_local Fiber::State* starting = nullptr;

}  // namespace

[[noreturn]] static void start() {
  starting->run();
}

Fiber::Fiber(Entry entry, void* argument) : state_(new State{entry, argument, nullptr}) {
  void* memory = mmap(nullptr, kGuard + kStack, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, kGuard, PROT_NONE);
  state_->memory = static_cast<unsigned char*>(memory);
#if defined(__x86_64__)
  // As if start() had been called: a return address, then six saved registers below it. The stack
  // pointer is 8 off a multiple of 16 at a function's first instruction.
  auto** top = reinterpret_cast<void**>(state_->stack() + kStack);
  top[-2] = reinterpret_cast<void*>(&start);
  for (int i = 3; i <= 8; ++i) top[-i] = nullptr;
  state_->fiber = top - 8;
#else
  getcontext(&state_->fiber);
  state_->fiber.uc_stack.ss_sp = state_->stack();
  state_->fiber.uc_stack.ss_size = kStack;
  state_->fiber.uc_link = nullptr;
  makecontext(&state_->fiber, start, 0);
#endif
}

Fiber::~Fiber() {
#if LATHE_ASAN
  // A fiber dropped in the middle leaves its frames' poison, which would outlive the mapping.
  __asan_unpoison_memory_region(state_->stack(), kStack);
#endif
#if LATHE_TSAN
  __tsan_destroy_fiber(state_->fiber_tsan);
#endif
  munmap(state_->memory, kGuard + kStack);
}

void Fiber::resume() {
  starting = state_.get();
  state_->to_fiber();
}

void Fiber::pause() {
  state_->to_caller();
}

}  // namespace lathe::emulation
