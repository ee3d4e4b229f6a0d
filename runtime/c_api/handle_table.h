// Owns the handles of the C interface: which are open, and the objects behind them.
//
// A handle is an index and a generation in the shape of a pointer that nobody follows. So one that
// was closed, is of another kind or never existed is told apart from a live one, whatever has been
// opened since. Threads: any number at once; finding takes no lock.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "lathe/codegen/result.h"

namespace lathe::c_api {

enum class HandleKind : std::uint8_t {
  key = 1,
  compilers,
  ptx,
  device,
  kernel,
  model,
  session,
  batch,
  snapshot,
  dense,
  dense_cache
};

using Destroy = void (*)(void* object);

// 0 when there are too many. May throw std::bad_alloc; then, too, the object stays the caller's.
std::uintptr_t add_handle(HandleKind kind, void* object, Destroy destroy);
// Null when no such handle is open.
void* find_handle(HandleKind kind, std::uintptr_t handle);
// Destroys the object. False when no such handle is open.
bool close_handle(HandleKind kind, std::uintptr_t handle);

// What follows is for objects that say what they are: Object::Handle is the type in the C headers,
// Object::kind its HandleKind and Object::noun its name in errors.

template <typename Object>
Error bad_handle(const typename Object::Handle* handle) {
  return {Code::invalid_argument,
          fmt::format("The {} is {}.", Object::noun,
                      handle ? "closed, or no handle of one" : "a null pointer"),
          {}};
}

template <typename Object>
Result<typename Object::Handle*> open_handle(std::unique_ptr<Object> object) {
  const std::uintptr_t handle = add_handle(
      Object::kind, object.get(), [](void* pointer) { delete static_cast<Object*>(pointer); });
  if (handle == 0) return Error{Code::out_of_memory, "There are too many open handles.", {}};
  static_cast<void>(object.release());
  return reinterpret_cast<typename Object::Handle*>(handle);
}

template <typename Object>
Result<Object*> find(const typename Object::Handle* handle) {
  void* object = find_handle(Object::kind, reinterpret_cast<std::uintptr_t>(handle));
  if (!object) return bad_handle<Object>(handle);
  return static_cast<Object*>(object);
}

template <typename Object>
Result<void> close(typename Object::Handle* handle) {
  if (!handle || close_handle(Object::kind, reinterpret_cast<std::uintptr_t>(handle))) return {};
  return bad_handle<Object>(handle);
}

}  // namespace lathe::c_api
