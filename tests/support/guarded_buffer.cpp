// Owns the mapping behind GuardedBuffer. Under AddressSanitizer the marked bytes are poisoned, so
// that a read of them is reported too.
#include "tests/support/guarded_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace lathe::testing {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::byte kMark{0xc3};

}  // namespace

GuardedBuffer::GuardedBuffer(std::span<const std::byte> contents, std::size_t alignment,
                             Placement placement)
    : size_(contents.size()) {
  const std::size_t usable = (size_ + alignment + kPage - 1) / kPage * kPage;
  mapped_ = usable + 2 * kPage;
  void* memory = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<std::byte*>(memory);
  mprotect(mapping_, kPage, PROT_NONE);
  mprotect(mapping_ + kPage + usable, kPage, PROT_NONE);
  std::byte* first = mapping_ + kPage;
  data_ = placement == Placement::start ? first + alignment
                                        : first + (usable - size_) / alignment * alignment;
  std::fill(first, data_, kMark);
  std::fill(data_ + size_, first + usable, kMark);
  std::copy(contents.begin(), contents.end(), data_);
  ASAN_POISON_MEMORY_REGION(first, static_cast<std::size_t>(data_ - first));
  ASAN_POISON_MEMORY_REGION(data_ + size_,
                            usable - size_ - static_cast<std::size_t>(data_ - first));
}

GuardedBuffer::GuardedBuffer(GuardedBuffer&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapped_(other.mapped_),
      data_(other.data_),
      size_(other.size_) {}

GuardedBuffer::~GuardedBuffer() {
  if (!mapping_) return;
  ASAN_UNPOISON_MEMORY_REGION(mapping_, mapped_);
  munmap(mapping_, mapped_);
}

bool GuardedBuffer::marks_intact() const {
  const std::byte* first = mapping_ + kPage;
  const std::byte* last = mapping_ + mapped_ - kPage;
  ASAN_UNPOISON_MEMORY_REGION(first, static_cast<std::size_t>(last - first));
  const auto marked = [](std::byte b) { return b == kMark; };
  return std::all_of(first, static_cast<const std::byte*>(data_), marked) &&
         std::all_of(static_cast<const std::byte*>(data_) + size_, last, marked);
}

}  // namespace lathe::testing
