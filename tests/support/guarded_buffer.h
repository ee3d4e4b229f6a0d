// Owns memory for kernel arguments that notices what a kernel must not touch: unreadable pages on
// both sides, and marked bytes between them and the data.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace lathe::testing {

// Where the data stands between the guard pages. Alignment comes first, so up to alignment - 1
// marked bytes stand behind the data at `end`; `start` has exactly `alignment` of them before it.
enum class Placement { end, start };

class GuardedBuffer {
 public:
  GuardedBuffer(std::span<const std::byte> contents, std::size_t alignment, Placement placement);
  ~GuardedBuffer();
  GuardedBuffer(GuardedBuffer&& other) noexcept;
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  std::byte* data() const { return data_; }
  std::span<const std::byte> contents() const { return {data_, size_}; }
  // True when no marked byte has changed. Allows them to be read from here on.
  bool marks_intact() const;

 private:
  std::byte* mapping_;
  std::size_t mapped_;  // bytes, guard pages included
  std::byte* data_;
  std::size_t size_;
};

}  // namespace lathe::testing
