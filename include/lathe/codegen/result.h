// Owns how Lathe reports failure: a status code, one sentence, and named details.
//
// Lathe never prints, exits or throws. Every call that can fail returns a Result<T>.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lathe {

// Numbered for the life of the library: a code never changes its meaning.
enum class Code : int {
  ok = 0,
  invalid_argument = 1,  // the caller's value is wrong; the message names it
  unsupported = 2,       // well formed, but no kernel, format or model family here covers it
  not_found = 3,         // a file, tensor, symbol or library is missing
  corrupt_file = 4,      // a model file contradicts itself or its own size
  io = 5,                // the operating system refused a read, write or map
  no_driver = 6,         // no usable NVIDIA driver or device on this machine
  driver = 7,            // a driver call failed; detail "call" and "status" say which and how
  compile = 8,           // a lowering route or the assembler refused; detail "log" has its words
  out_of_memory = 9,     // device or host memory; details "needed" and "free" in bytes
  out_of_range = 10,     // a position past the context, a token past the vocabulary
  not_eligible = 11,     // this way does not apply, take another; the message says why
  internal = 12,         // a defect in Lathe
  cancelled = 13,        // the caller said so while it went on
};

const char* code_name(Code code);

// One named fact beside an error, e.g. {"key", "gemv.q4_k.k4096.n14336.w4"}.
struct Detail {
  std::string name;
  std::string value;
};

struct Error {
  Code code = Code::internal;
  std::string message;          // one sentence that names the thing at fault
  std::vector<Detail> details;  // key, target, route, log, path, hint ...
  int driver_status = 0;        // the driver's CUresult, where a driver call failed

  // Adds a detail and returns the error, so that it can be built in a return statement.
  Error with(std::string name, std::string value) &&;
  // Message, then one "  name: value" line per detail.
  std::string text() const;
};

// Either a value or an Error. Test it, then use value() or error(); taking the absent one is a
// defect in the caller and undefined.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return state_.index() == 0; }
  T& value() & { return *std::get_if<0>(&state_); }
  const T& value() const& { return *std::get_if<0>(&state_); }
  T&& value() && { return std::move(*std::get_if<0>(&state_)); }
  Error& error() & { return *std::get_if<1>(&state_); }
  const Error& error() const& { return *std::get_if<1>(&state_); }
  Error&& error() && { return std::move(*std::get_if<1>(&state_)); }
  T* operator->() { return std::get_if<0>(&state_); }
  const T* operator->() const { return std::get_if<0>(&state_); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : failed_(true), error_(std::move(error)) {}

  explicit operator bool() const { return !failed_; }
  Error& error() & { return error_; }
  const Error& error() const& { return error_; }
  Error&& error() && { return std::move(error_); }

 private:
  bool failed_ = false;
  Error error_;
};

}  // namespace lathe

// LATHE_TRY(expr): returns the error of a Result from the enclosing function.
#define LATHE_TRY(expr)                                                                       \
  do {                                                                                        \
    if (auto lathe_result_ = (expr); !lathe_result_) return std::move(lathe_result_).error(); \
  } while (false)

// LATHE_ASSIGN(auto x, expr): declares x as the value of a Result, or returns its error.
#define LATHE_ASSIGN_NAME_(a, b) a##b
#define LATHE_ASSIGN_LINE_(a, b) LATHE_ASSIGN_NAME_(a, b)
#define LATHE_ASSIGN(declaration, expr)                                    \
  auto LATHE_ASSIGN_LINE_(lathe_assign_, __LINE__) = (expr);               \
  if (!LATHE_ASSIGN_LINE_(lathe_assign_, __LINE__))                        \
    return std::move(LATHE_ASSIGN_LINE_(lathe_assign_, __LINE__)).error(); \
  declaration = std::move(LATHE_ASSIGN_LINE_(lathe_assign_, __LINE__)).value()
