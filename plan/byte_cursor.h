// Owns reading little-endian values from bytes that cannot be trusted.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "lathe/codegen/result.h"

namespace lathe {

// Reads forward and never past the end. `what` names the field in the error.
class ByteCursor {
 public:
  // Begins at `offset`, which is not past the end.
  explicit ByteCursor(std::span<const std::byte> bytes, std::size_t offset = 0)
      : bytes_(bytes), offset_(offset) {}

  std::size_t offset() const { return offset_; }
  std::size_t remaining() const { return bytes_.size() - offset_; }

  template <typename T>
  Result<T> number(std::string_view what) {
    if (remaining() < sizeof(T)) return truncated(what, sizeof(T));
    return take<T>();
  }

  // The same for a caller that has checked remaining().
  template <typename T>
  T take() {
    static_assert(std::endian::native == std::endian::little);
    T value;
    std::memcpy(&value, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return value;
  }

  // That many bytes.
  Result<std::string_view> characters(std::string_view what, std::uint64_t length);
  // A 64-bit length and that many bytes.
  Result<std::string_view> text(std::string_view what);

  Error truncated(std::string_view what, std::uint64_t needed) const;

 private:
  std::span<const std::byte> bytes_;
  std::size_t offset_;
};

}  // namespace lathe
