// Owns what all of the C++ face of the C interface rests on: errors, results, sized structs, and
// handles that close themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "lathe/lathe.h"

namespace lathe::api {
// By the binary interface: programs of two generations can share a process.
inline namespace v0 {
static_assert(LATHE_ABI_VERSION == 0);

struct Error {
  lathe_status status = LATHE_INTERNAL;
  int driver_status = 0;  // the driver's CUresult, where a driver call failed
  std::string message;    // one sentence
  std::string text;       // the message and its details, one a line
};

inline Error last_error() {
  lathe_error error = {};
  error.struct_size = sizeof error;
  if (lathe_last_error(&error) != LATHE_OK) return {};
  return {error.status, error.driver_status, error.message, error.text};
}

// A value or an Error. Test it first; taking the absent one is undefined.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return state_.index() == 0; }
  T& operator*() & { return *std::get_if<0>(&state_); }
  const T& operator*() const& { return *std::get_if<0>(&state_); }
  T&& operator*() && { return std::move(*std::get_if<0>(&state_)); }
  T* operator->() { return std::get_if<0>(&state_); }
  const T* operator->() const { return std::get_if<0>(&state_); }
  const Error& error() const { return *std::get_if<1>(&state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}
  explicit operator bool() const { return !error_; }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

// A C struct with its struct_size set and all else 0: sized<lathe_session_options>().
template <typename Struct>
Struct sized() {
  Struct empty = {};
  empty.struct_size = sizeof(Struct);
  return empty;
}

inline Result<void> result_of(lathe_status status) {
  if (status == LATHE_OK) return {};
  return last_error();
}

// What a call wrote, or why it did not.
template <typename T>
Result<T> result_of(lathe_status status, T value) {
  if (status == LATHE_OK) return value;
  return last_error();
}

// Owns a handle: moved, not copied.
template <typename C, lathe_status (*close)(C*)>
class Handle {
 public:
  C* get() const { return handle_.get(); }

 protected:
  explicit Handle(C* handle) : handle_(handle) {}

 private:
  struct Close {
    void operator()(C* handle) const { close(handle); }
  };
  std::unique_ptr<C, Close> handle_;
};

}  // namespace v0
}  // namespace lathe::api
