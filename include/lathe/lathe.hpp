// Owns the C++ face of the C interface: handles that close themselves, results in place of status
// codes, spans and views. Header-only over lathe/lathe.h, C++20, no exceptions: what it compiles to
// is the program's own, and only C functions are called in liblathe.so.
//
// The comments in lathe/c/*.h say what each call does, waits for and refuses. Infos are the C
// structs; their strings live as long as the object they were asked of.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

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

enum class Route : std::int32_t {
  automatic = LATHE_ROUTE_DEFAULT,
  nvrtc = LATHE_ROUTE_NVRTC,
  llvm = LATHE_ROUTE_LLVM,
  text = LATHE_ROUTE_TEXT,
};

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

class Key : public Handle<lathe_key, lathe_key_close> {
 public:
  static Result<Key> parse(std::string_view text) {
    lathe_key* key = nullptr;
    if (lathe_key_parse(std::string(text).c_str(), &key) != LATHE_OK) return last_error();
    return Key(key);
  }
  Result<lathe_key_info> info() const {
    auto info = sized<lathe_key_info>();
    const lathe_status status = lathe_key_get_info(get(), &info);
    return result_of(status, info);
  }
  Result<lathe_parameter> parameter(int index) const {
    auto parameter = sized<lathe_parameter>();
    const lathe_status status = lathe_key_get_parameter(get(), index, &parameter);
    return result_of(status, parameter);
  }

 private:
  using Handle::Handle;
};

class Ptx : public Handle<lathe_ptx, lathe_ptx_close> {
 public:
  Result<lathe_ptx_info> info() const {
    auto info = sized<lathe_ptx_info>();
    const lathe_status status = lathe_ptx_get_info(get(), &info);
    return result_of(status, info);
  }

 private:
  friend class Compilers;
  using Handle::Handle;
};

class Compilers : public Handle<lathe_compilers, lathe_compilers_close> {
 public:
  static Result<Compilers> open() { return open(sized<lathe_compiler_options>()); }
  static Result<Compilers> open(const lathe_compiler_options& options) {
    lathe_compilers* compilers = nullptr;
    if (lathe_compilers_open(&options, &compilers) != LATHE_OK) return last_error();
    return Compilers(compilers);
  }
  Result<Ptx> emit(const Key& key, std::string_view target, Route route = Route::automatic) const {
    lathe_ptx* ptx = nullptr;
    if (lathe_ptx_emit(get(), key.get(), std::string(target).c_str(),
                       static_cast<std::int32_t>(route), &ptx) != LATHE_OK)
      return last_error();
    return Ptx(ptx);
  }
  Result<std::string_view> version(Route route) const {
    const char* version = "";
    const auto number = static_cast<std::int32_t>(route);
    const lathe_status status = lathe_compilers_get_version(get(), number, &version);
    return result_of<std::string_view>(status, version);
  }

 private:
  using Handle::Handle;
};

class Kernel : public Handle<lathe_kernel, lathe_kernel_close> {
 public:
  Result<lathe_kernel_info> info() const {
    auto info = sized<lathe_kernel_info>();
    const lathe_status status = lathe_kernel_get_info(get(), &info);
    return result_of(status, info);
  }
  Result<void> launch(std::span<const std::uint64_t> arguments, CUstream_st* stream) const {
    return result_of(lathe_kernel_launch(get(), arguments.data(),
                                         static_cast<std::int32_t>(arguments.size()), stream));
  }

 private:
  friend class Device;
  using Handle::Handle;
};

class Device : public Handle<lathe_device, lathe_device_close> {
 public:
  static Result<Device> open() { return open(sized<lathe_device_options>()); }
  static Result<Device> open(const lathe_device_options& options) {
    lathe_device* device = nullptr;
    if (lathe_device_open(&options, &device) != LATHE_OK) return last_error();
    return Device(device);
  }
  Result<lathe_device_info> info() const {
    auto info = sized<lathe_device_info>();
    const lathe_status status = lathe_device_get_info(get(), &info);
    return result_of(status, info);
  }
  Result<void> prepare(std::span<const Key> keys, lathe_progress progress = nullptr,
                       void* user = nullptr) const {
    std::vector<const lathe_key*> handles;
    for (const Key& key : keys) handles.push_back(key.get());
    return result_of(lathe_device_prepare(
        get(), handles.data(), static_cast<std::int32_t>(handles.size()), progress, user));
  }
  Result<Kernel> load(const Key& key) const {
    lathe_kernel* kernel = nullptr;
    if (lathe_kernel_load(get(), key.get(), &kernel) != LATHE_OK) return last_error();
    return Kernel(kernel);
  }
  Result<Kernel> load(const lathe_custom_kernel& custom) const {
    lathe_kernel* kernel = nullptr;
    if (lathe_kernel_load_custom(get(), &custom, &kernel) != LATHE_OK) return last_error();
    return Kernel(kernel);
  }

 private:
  using Handle::Handle;
};

class Model : public Handle<lathe_model, lathe_model_close> {
 public:
  static Result<Model> open(std::string_view path) {
    lathe_model* model = nullptr;
    if (lathe_model_open(std::string(path).c_str(), &model) != LATHE_OK) return last_error();
    return Model(model);
  }
  // The bytes must stay as they are while the model, or a session of it, is open.
  static Result<Model> open(std::span<const std::byte> bytes, std::string_view name) {
    lathe_model* model = nullptr;
    if (lathe_model_open_bytes(bytes.data(), bytes.size(), std::string(name).c_str(), &model) !=
        LATHE_OK)
      return last_error();
    return Model(model);
  }
  Result<lathe_model_info> info() const {
    auto info = sized<lathe_model_info>();
    const lathe_status status = lathe_model_get_info(get(), &info);
    return result_of(status, info);
  }

 private:
  using Handle::Handle;
};

class Session : public Handle<lathe_session, lathe_session_close> {
 public:
  static Result<Session> open(const Model& model) {
    return open(model, sized<lathe_session_options>());
  }
  static Result<Session> open(const Model& model, const lathe_session_options& options) {
    lathe_session* session = nullptr;
    if (lathe_session_open(model.get(), &options, &session) != LATHE_OK) return last_error();
    return Session(session);
  }
  Result<lathe_session_info> info() const {
    auto info = sized<lathe_session_info>();
    const lathe_status status = lathe_session_get_info(get(), &info);
    return result_of(status, info);
  }
  Result<std::string_view> note(int index) const {
    const char* note = "";
    const lathe_status status = lathe_session_get_note(get(), index, &note);
    return result_of<std::string_view>(status, note);
  }
  Result<void> step(std::int32_t token) { return result_of(lathe_session_step(get(), token)); }
  Result<void> feed(std::span<const std::int32_t> tokens) {
    return result_of(lathe_session_feed(get(), tokens.data(), count(tokens.size())));
  }
  Result<void> generate(std::int32_t token, std::span<std::int32_t> tokens) {
    return result_of(lathe_session_generate(get(), token, tokens.data(), count(tokens.size())));
  }
  // How many of the tokens there are. options: stop tokens, and who is told of tokens as they come.
  Result<std::int32_t> generate_until(std::int32_t token, std::span<std::int32_t> tokens,
                                      const lathe_run_options& options) {
    std::int32_t chosen = 0;
    const lathe_status status = lathe_session_generate_until(get(), token, &options, tokens.data(),
                                                             count(tokens.size()), &chosen);
    return result_of(status, chosen);
  }
  Result<std::int32_t> sampled() {
    std::int32_t token = -1;
    const lathe_status status = lathe_session_get_sampled(get(), &token);
    return result_of(status, token);
  }
  Result<std::span<const float>> logits() {
    const float* logits = nullptr;
    std::int32_t values = 0;
    const lathe_status status = lathe_session_get_logits(get(), &logits, &values);
    return result_of(status, std::span(logits, static_cast<std::size_t>(values)));
  }
  Result<std::int32_t> length() const {
    std::int32_t length = 0;
    const lathe_status status = lathe_session_get_length(get(), &length);
    return result_of(status, length);
  }
  Result<void> rollback(std::int32_t length) {
    return result_of(lathe_session_rollback(get(), length));
  }
  Result<void> set_sampling(const lathe_sampling& sampling) {
    return result_of(lathe_session_set_sampling(get(), &sampling));
  }

 private:
  static std::int32_t count(std::size_t values) { return static_cast<std::int32_t>(values); }
  using Handle::Handle;
};

}  // namespace v0
}  // namespace lathe::api
