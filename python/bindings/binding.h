// Owns what the bindings share: how a failed call becomes a Python exception, and how callbacks
// come back into Python from a call that let go of the interpreter's lock.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "lathe/lathe.hpp"

namespace lathe::python {

namespace nb = nanobind;

// Raises lathe.Error of the calling thread's last error. The lock must be held.
[[noreturn]] void raise_last_error();

// The value of a call, or its error raised.
template <typename T>
T value_of(api::Result<T> result) {
  if (!result) raise_last_error();
  return *std::move(result);
}
inline void expect(const api::Result<void>& result) {
  if (!result) raise_last_error();
}

// Runs a call without the interpreter's lock: others may run Python meanwhile.
template <typename Call>
auto unlocked(const Call& call) {
  const nb::gil_scoped_release released;
  return call();
}

// What one call may call back. The first exception is kept, later callbacks do nothing, and
// rethrow() raises it once the call has returned.
class Callback {
 public:
  explicit Callback(nb::object callable) : callable_(std::move(callable)) {}
  bool given() const { return !callable_.is_none(); }
  bool failed() const { return failure_.has_value(); }
  // Wants the lock. Notices a Ctrl-C of the user's too.
  template <typename... Arguments>
  nb::object call(Arguments&&... arguments) {
    nb::object answer;
    try_to([&](const nb::object& callable) {
      answer = callable(std::forward<Arguments>(arguments)...);
    });
    return answer;
  }
  // The same for whoever looks into what it returns.
  template <typename Body>
  void try_to(const Body& body) {
    if (failed()) return;
    try {
      notice_signals();
      if (given() && !failed()) body(callable_);
    } catch (nb::python_error& error) {
      failure_.emplace(std::move(error));
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_ValueError, error.what());
      failure_.emplace(nb::python_error());
    }
  }
  void notice_signals() {
    if (!failed() && PyErr_CheckSignals() != 0) failure_.emplace(nb::python_error());
  }
  void rethrow() {
    if (failure_) throw nb::python_error(*std::exchange(failure_, std::nullopt));
  }

 private:
  nb::object callable_;
  std::optional<nb::python_error> failure_;
};

// A lathe_progress whose user is a Callback.
void tell_progress(void* callback, const char* what, std::int64_t done, std::int64_t total);

void bind_arrays(nb::module_& module);
void bind_batches(nb::module_& module);
void bind_dense(nb::module_& module);
void bind_errors(nb::module_& module);
void bind_kernels(nb::module_& module);
void bind_models(nb::module_& module);
void bind_sessions(nb::module_& module);

}  // namespace lathe::python
