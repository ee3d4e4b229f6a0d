// Owns the border of the C interface: what every function does with its arguments, its structs and
// its failures.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <string>

#include "lathe/c/base.h"
#include "lathe/codegen/result.h"

namespace lathe::c_api {

// Keeps the error for lathe_last_error() and returns its status.
lathe_status fail(Error error) noexcept;
// The same where there is no memory for an Error.
lathe_status fail_without_memory() noexcept;
// The same where an exception came this far.
lathe_status fail_by_exception() noexcept;

// Runs the body of a function, which returns Result<void>. Nothing that it, or a callback of the
// caller's, throws gets out.
template <typename Body>
lathe_status guarded(const Body& body) noexcept {
  try {
    Result<void> done = body();
    return done ? LATHE_OK : fail(std::move(done).error());
  } catch (const std::bad_alloc&) {
    return fail_without_memory();
  } catch (...) {
    return fail_by_exception();
  }
}

inline Error null_argument(const char* name) {
  return {Code::invalid_argument, fmt::format("The argument {} is a null pointer.", name), {}};
}

// Returns the error of a null argument from the enclosing function.
#define LATHE_NOT_NULL(argument) \
  if (!(argument)) return ::lathe::c_api::null_argument(#argument)

// Ok when `count` values can be at `values`: none needs no array.
inline Result<void> check_array(const void* values, const char* name, std::int64_t count) {
  if (count < 0) {
    return Error{Code::invalid_argument, fmt::format("The count of {} is {}.", name, count), {}};
  }
  if (count > 0 && !values) return null_argument(name);
  return {};
}

// Sizes of members, of which a struct of any age is made.
constexpr std::size_t kSizeUnit = 8;
constexpr std::size_t kMaxStructSize = 1 << 16;

constexpr bool sound_size(std::size_t size) {
  return size >= kSizeUnit && size <= kMaxStructSize && size % kSizeUnit == 0;
}

template <typename Struct>
Result<void> check_size(const Struct* given, const char* name) {
  static_assert(offsetof(Struct, struct_size) == 0 && sound_size(sizeof(Struct)));
  if (!given) return null_argument(name);
  const std::size_t size = given->struct_size;
  if (sound_size(size)) return {};
  return Error{Code::invalid_argument,
               fmt::format("The struct_size of {} is {}; set it to sizeof({}).", name, size, name),
               {}};
}

// The caller's struct in this library's shape: members that the caller's header lacks are 0.
template <typename Struct>
Result<Struct> read_struct(const Struct* given, const char* name) {
  LATHE_TRY(check_size(given, name));
  const std::size_t size = given->struct_size;
  const auto* bytes = reinterpret_cast<const std::byte*>(given);
  if (size > sizeof(Struct) && std::any_of(bytes + sizeof(Struct), bytes + size,
                                           [](std::byte byte) { return byte != std::byte{0}; })) {
    return Error{
        Code::unsupported,
        fmt::format("A member of {} is set that this version of Lathe does not know.", name),
        {}}
        .with("hint", "use a library as new as the header");
  }
  Struct known = {};
  std::memcpy(&known, given, std::min(size, sizeof(Struct)));
  return known;
}
// Null is all defaults.
template <typename Struct>
Result<Struct> read_optional_struct(const Struct* given, const char* name) {
  if (given) return read_struct(given, name);
  return Struct{};
}

// Writes as many members as the caller's header has.
template <typename Struct>
Result<void> write_struct(Struct values, Struct* to, const char* name) {
  LATHE_TRY(check_size(to, name));
  values.struct_size = to->struct_size;
  std::memcpy(to, &values, std::min(to->struct_size, sizeof(Struct)));
  return {};
}

inline std::string text_or_empty(const char* text) {
  return text ? text : "";
}

inline Error unknown_number(const char* what, std::int32_t number) {
  return {Code::invalid_argument, fmt::format("There is no {} number {}.", what, number), {}};
}

}  // namespace lathe::c_api
