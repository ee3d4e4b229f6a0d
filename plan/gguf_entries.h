// Owns writing metadata as a GGUF file has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "plan/gguf_metadata.h"

namespace lathe {

template <typename T>
void append_number(std::vector<std::byte>& to, T value) {
  const std::size_t at = to.size();
  to.resize(at + sizeof(T));
  std::memcpy(to.data() + at, &value, sizeof(T));
}

inline void append_bytes(std::vector<std::byte>& to, std::string_view bytes) {
  const auto* from = reinterpret_cast<const std::byte*>(bytes.data());
  to.insert(to.end(), from, from + bytes.size());
}

// A length of 64 bits, then the characters.
inline void append_gguf_text(std::vector<std::byte>& to, std::string_view text) {
  append_number(to, std::uint64_t{text.size()});
  append_bytes(to, text);
}

class GgufEntries {
 public:
  void string(std::string_view key, std::string_view value) {
    begin(key, GgufValueType::string);
    append_gguf_text(bytes_, value);
  }
  void u32(std::string_view key, std::uint32_t value) {
    begin(key, GgufValueType::u32);
    append_number(bytes_, value);
  }
  void f32(std::string_view key, float value) {
    begin(key, GgufValueType::f32);
    append_number(bytes_, value);
  }
  void boolean(std::string_view key, bool value) {
    begin(key, GgufValueType::boolean);
    append_number(bytes_, std::uint8_t{value});
  }
  void integers(std::string_view key, const std::vector<std::int32_t>& values) {
    begin_array(key, GgufValueType::i32, values.size());
    for (const std::int32_t value : values) append_number(bytes_, value);
  }
  template <typename Texts>
  void strings(std::string_view key, const Texts& values) {
    begin_array(key, GgufValueType::string, values.size());
    for (const auto& value : values) append_gguf_text(bytes_, value);
  }

  std::uint64_t count() const { return count_; }
  std::vector<std::byte> take() && { return std::move(bytes_); }

 private:
  void begin(std::string_view key, GgufValueType type) {
    append_gguf_text(bytes_, key);
    append_number(bytes_, type);
    ++count_;
  }
  void begin_array(std::string_view key, GgufValueType element, std::size_t count) {
    begin(key, GgufValueType::array);
    append_number(bytes_, element);
    append_number(bytes_, std::uint64_t{count});
  }

  std::vector<std::byte> bytes_;
  std::uint64_t count_ = 0;
};

}  // namespace lathe
