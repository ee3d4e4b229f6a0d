// Owns reading the metadata of a GGUF file: keys and values.
#include "plan/gguf_metadata.h"

#include <fmt/format.h>

#include <type_traits>
#include <utility>
#include <vector>

namespace lathe {
namespace {

constexpr std::size_t kMaxKeyBytes = 65535;

using ValueType = GgufValueType;

Error corrupt(std::string message) {
  return Error{Code::corrupt_file, std::move(message), {}};
}

Result<void> check_boolean(std::uint8_t byte, std::string_view what, std::size_t offset) {
  if (byte <= 1) return {};
  return corrupt(fmt::format("{} at byte {} is the boolean {}; only 0 and 1 are booleans", what,
                             offset, byte));
}

class ValueReader {
 public:
  ValueReader(ByteCursor& cursor, const std::string& what) : cursor_(cursor), what_(what) {}

  Result<GgufValue> read() {
    const std::size_t type_offset = cursor_.offset();
    LATHE_ASSIGN(const auto type, cursor_.number<std::uint32_t>(what_));
    switch (static_cast<ValueType>(type)) {
      case ValueType::u8:
        return read_number<std::uint8_t>();
      case ValueType::i8:
        return read_number<std::int8_t>();
      case ValueType::u16:
        return read_number<std::uint16_t>();
      case ValueType::i16:
        return read_number<std::int16_t>();
      case ValueType::u32:
        return read_number<std::uint32_t>();
      case ValueType::i32:
        return read_number<std::int32_t>();
      case ValueType::u64:
        return read_number<std::uint64_t>();
      case ValueType::i64:
        return read_number<std::int64_t>();
      case ValueType::f32:
        return read_number<float>();
      case ValueType::f64:
        return read_number<double>();
      case ValueType::boolean: {
        const std::size_t offset = cursor_.offset();
        LATHE_ASSIGN(const auto byte, cursor_.number<std::uint8_t>(what_));
        LATHE_TRY(check_boolean(byte, what_, offset));
        return GgufValue(byte != 0);
      }
      case ValueType::string: {
        LATHE_ASSIGN(const auto text, cursor_.text(what_));
        return GgufValue(std::string(text));
      }
      case ValueType::array:
        return read_array();
    }
    return corrupt(fmt::format("{} at byte {} has the unknown type {}", what_, type_offset, type));
  }

 private:
  template <typename T>
  Result<GgufValue> read_number() {
    LATHE_ASSIGN(const T number, cursor_.number<T>(what_));
    if constexpr (std::is_floating_point_v<T>) {
      return GgufValue(static_cast<double>(number));
    } else {
      if (std::in_range<std::int64_t>(number)) return GgufValue(static_cast<std::int64_t>(number));
      return GgufValue(static_cast<std::uint64_t>(number));
    }
  }

  Result<GgufValue> read_array() {
    const std::size_t type_offset = cursor_.offset();
    LATHE_ASSIGN(const auto type, cursor_.number<std::uint32_t>(what_));
    const std::size_t count_offset = cursor_.offset();
    LATHE_ASSIGN(const auto count, cursor_.number<std::uint64_t>(what_));
    switch (static_cast<ValueType>(type)) {
      case ValueType::u8:
        return read_elements<std::uint8_t, std::int64_t>(count, count_offset);
      case ValueType::i8:
        return read_elements<std::int8_t, std::int64_t>(count, count_offset);
      case ValueType::u16:
        return read_elements<std::uint16_t, std::int64_t>(count, count_offset);
      case ValueType::i16:
        return read_elements<std::int16_t, std::int64_t>(count, count_offset);
      case ValueType::u32:
        return read_elements<std::uint32_t, std::int64_t>(count, count_offset);
      case ValueType::i32:
        return read_elements<std::int32_t, std::int64_t>(count, count_offset);
      case ValueType::u64:
        return read_elements<std::uint64_t, std::int64_t>(count, count_offset);
      case ValueType::i64:
        return read_elements<std::int64_t, std::int64_t>(count, count_offset);
      case ValueType::f32:
        return read_elements<float, double>(count, count_offset);
      case ValueType::f64:
        return read_elements<double, double>(count, count_offset);
      case ValueType::boolean:
        return read_elements<std::uint8_t, bool>(count, count_offset);
      case ValueType::string:
        return read_strings(count, count_offset);
      case ValueType::array:
        return Error{Code::unsupported,
                     fmt::format("{} at byte {} is an array of arrays, which is not read", what_,
                                 type_offset),
                     {}};
    }
    return corrupt(
        fmt::format("{} at byte {} is an array of the unknown type {}", what_, type_offset, type));
  }

  Result<void> check_count(std::uint64_t count, std::size_t element_bytes,
                           std::size_t count_offset) const {
    if (count <= cursor_.remaining() / element_bytes) return {};
    return corrupt(fmt::format(
        "{} at byte {} is an array of {} elements, more than the remaining {} bytes can hold",
        what_, count_offset, count, cursor_.remaining()));
  }

  template <typename T, typename Out>
  Result<GgufValue> read_elements(std::uint64_t count, std::size_t count_offset) {
    LATHE_TRY(check_count(count, sizeof(T), count_offset));
    std::vector<Out> out;
    out.reserve(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::size_t offset = cursor_.offset();
      const T element = cursor_.take<T>();
      if constexpr (std::is_same_v<Out, bool>) {
        LATHE_TRY(check_boolean(element, what_, offset));
      } else if constexpr (std::is_same_v<T, std::uint64_t>) {
        if (!std::in_range<std::int64_t>(element)) {
          return Error{
              Code::unsupported,
              fmt::format("{} at byte {} has the element {}, above the signed 64-bit range", what_,
                          offset, element),
              {}};
        }
      }
      out.push_back(static_cast<Out>(element));
    }
    return GgufValue(GgufArray(std::move(out)));
  }

  Result<GgufValue> read_strings(std::uint64_t count, std::size_t count_offset) {
    LATHE_TRY(check_count(count, sizeof(std::uint64_t), count_offset));
    std::vector<std::string> out;
    out.reserve(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) {
      LATHE_ASSIGN(const auto text, cursor_.text(what_));
      out.emplace_back(text);
    }
    return GgufValue(GgufArray(std::move(out)));
  }

  ByteCursor& cursor_;
  const std::string& what_;
};

}  // namespace

Result<void> check_name(std::string_view name, std::string_view what, std::size_t offset,
                        std::size_t limit) {
  if (name.empty()) return corrupt(fmt::format("{} at byte {} is empty", what, offset));
  if (name.size() > limit) {
    return corrupt(fmt::format("{} at byte {} is {} bytes long; the limit is {}", what, offset,
                               name.size(), limit));
  }
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      return corrupt(
          fmt::format("{} at byte {} contains the control character 0x{:02x}", what, offset, byte));
    }
  }
  return {};
}

Result<void> read_gguf_entries(ByteCursor& cursor, std::uint64_t count,
                               std::unordered_map<std::string, GgufValue>& values) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::size_t offset = cursor.offset();
    const std::string what = fmt::format("the key of metadata entry {}", i);
    LATHE_ASSIGN(const auto key, cursor.text(what));
    LATHE_TRY(check_name(key, what, offset, kMaxKeyBytes));
    const std::string name = fmt::format("the value of '{}'", key);
    LATHE_ASSIGN(auto value, ValueReader(cursor, name).read());
    if (!values.emplace(key, std::move(value)).second) {
      return corrupt(fmt::format("the metadata key '{}' at byte {} occurs twice", key, offset));
    }
  }
  return {};
}

}  // namespace lathe
