// Owns writing small GGUF files in memory for tests, field by field, with the place of each field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lathe::testing {

// Where a number lies in the finished file, so that tests can overwrite it.
struct GgufField {
  std::string name;  // "version", "key 0 length", "tensor 1 dim 0" ...
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

struct GgufImage {
  std::vector<std::byte> bytes;
  std::vector<GgufField> fields;

  const GgufField& field(std::string_view name) const;
  // Overwrites a field with the low bytes of `value`.
  void set(std::string_view name, std::uint64_t value);
};

// Value types of GGUF metadata.
enum class GgufType : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

class GgufWriter {
 public:
  std::uint32_t version = 3;
  std::int64_t alignment = 32;  // of the data section; the key is written by the caller

  template <typename T>
  void number(std::string key, GgufType type, T value) {
    values_.push_back({std::move(key), type, raw(value)});
  }
  void u32(std::string key, std::uint32_t value) { number(std::move(key), GgufType::u32, value); }
  void f32(std::string key, float value) { number(std::move(key), GgufType::f32, value); }
  void boolean(std::string key, bool value) {
    number(std::move(key), GgufType::boolean, static_cast<std::uint8_t>(value));
  }
  void string(std::string key, std::string_view value) {
    values_.push_back({std::move(key), GgufType::string, raw_string(value)});
  }
  template <typename T>
  void array(std::string key, GgufType element, const std::vector<T>& elements) {
    std::vector<std::byte> body = raw(static_cast<std::uint32_t>(element));
    append(body, raw(static_cast<std::uint64_t>(elements.size())));
    for (const T& item : elements) append(body, raw(item));
    values_.push_back({std::move(key), GgufType::array, std::move(body)});
  }
  void strings(std::string key, const std::vector<std::string>& elements) {
    std::vector<std::byte> body = raw(static_cast<std::uint32_t>(GgufType::string));
    append(body, raw(static_cast<std::uint64_t>(elements.size())));
    for (const std::string& item : elements) append(body, raw_string(item));
    values_.push_back({std::move(key), GgufType::array, std::move(body)});
  }
  // Any type and bytes, right or wrong.
  void value(std::string key, GgufType type, std::vector<std::byte> body) {
    values_.push_back({std::move(key), type, std::move(body)});
  }

  // Takes a key or a tensor out again, so that a test can leave it out or write another.
  void drop(std::string_view name) {
    std::erase_if(values_, [&](const Value& value) { return value.key == name; });
    std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; });
  }

  // Data follows in the order of the tensors, each at a multiple of the alignment.
  void tensor(std::string name, std::vector<std::uint64_t> dims, std::uint32_t ggml_type,
              std::vector<std::byte> data) {
    tensors_.push_back({std::move(name), std::move(dims), ggml_type, std::move(data)});
  }

  GgufImage image() const;

  template <typename T>
  static std::vector<std::byte> raw(T value) {
    std::vector<std::byte> bytes(sizeof(T));
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
  }

 private:
  struct Value {
    std::string key;
    GgufType type;
    std::vector<std::byte> body;
  };
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> dims;
    std::uint32_t type;
    std::vector<std::byte> data;
  };

  static void append(std::vector<std::byte>& to, const std::vector<std::byte>& from) {
    to.insert(to.end(), from.begin(), from.end());
  }
  static std::vector<std::byte> raw_string(std::string_view text);

  std::vector<Value> values_;
  std::vector<Tensor> tensors_;
};

}  // namespace lathe::testing
