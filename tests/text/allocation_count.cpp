// Owns the replacement of the program's new and delete. It is a file of its own because compilers
// that see a replacement where it is used warn of new and free being mixed.
#include "tests/text/allocation_count.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<size_t> count = 0;

}  // namespace

void* operator new(size_t size, const std::nothrow_t&) noexcept {
  ++count;
  return std::malloc(size > 0 ? size : 1);
}

void* operator new(size_t size) {
  void* memory = operator new(size, std::nothrow);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}

namespace lathe::text {

size_t allocation_count() {
  return count;
}

}  // namespace lathe::text
