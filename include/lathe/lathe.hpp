// Owns the C++ face of the C interface: handles that close themselves, results in place of status
// codes, spans and views. Header-only over lathe/lathe.h, C++20, no exceptions: what it compiles to
// is the program's own, and only C functions are called in liblathe.so.
//
// The comments in lathe/c/*.h say what each call does, waits for and refuses. Infos are the C
// structs; their strings live as long as the object they were asked of.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lathe/cpp/result.hpp"
#include "lathe/lathe.h"

namespace lathe::api {
inline namespace v0 {

enum class Route : std::int32_t {
  automatic = LATHE_ROUTE_DEFAULT,
  nvrtc = LATHE_ROUTE_NVRTC,
  llvm = LATHE_ROUTE_LLVM,
  text = LATHE_ROUTE_TEXT,
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
    return open(path, sized<lathe_model_options>());
  }
  static Result<Model> open(std::string_view path, const lathe_model_options& options) {
    lathe_model* model = nullptr;
    if (lathe_model_open_with(std::string(path).c_str(), &options, &model) != LATHE_OK)
      return last_error();
    return Model(model);
  }
  // The bytes must stay as they are while the model, or a session of it, is open.
  static Result<Model> open(std::span<const std::byte> bytes, std::string_view name) {
    return open(bytes, name, sized<lathe_model_options>());
  }
  static Result<Model> open(std::span<const std::byte> bytes, std::string_view name,
                            const lathe_model_options& options) {
    lathe_model* model = nullptr;
    if (lathe_model_adopt(bytes.data(), bytes.size(), std::string(name).c_str(), &options,
                          &model) != LATHE_OK)
      return last_error();
    return Model(model);
  }
  Result<lathe_model_info> info() const {
    auto info = sized<lathe_model_info>();
    const lathe_status status = lathe_model_get_info(get(), &info);
    return result_of(status, info);
  }
  Result<lathe_model_report> report(std::int32_t context = 0,
                                    std::int32_t kv_format = LATHE_KV_F32) const {
    auto report = sized<lathe_model_report>();
    const lathe_status status = lathe_model_get_report(get(), context, kv_format, &report);
    return result_of(status, report);
  }
  Result<void> convert(std::string_view path) const {
    return result_of(lathe_model_convert(get(), std::string(path).c_str(), nullptr, nullptr));
  }

 private:
  using Handle::Handle;
};

// A prefix of a session or a sequence, by itself.
class Snapshot : public Handle<lathe_snapshot, lathe_snapshot_close> {
 public:
  Result<lathe_snapshot_info> info() const {
    auto info = sized<lathe_snapshot_info>();
    const lathe_status status = lathe_snapshot_get_info(get(), &info);
    return result_of(status, info);
  }

 private:
  friend class Session;
  friend class Batch;
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
  // What was chosen, and why: 0 <= index < info().choice_count.
  Result<lathe_choice> choice(int index) const {
    auto choice = sized<lathe_choice>();
    const lathe_status status = lathe_session_get_choice(get(), index, &choice);
    return result_of(status, choice);
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
  Result<void> record_step() { return result_of(lathe_session_record_step(get())); }
  Result<void> begin_replays(std::int32_t token) {
    return result_of(lathe_session_begin_replays(get(), token));
  }
  Result<void> take_replays(std::span<std::int32_t> tokens) {
    return result_of(lathe_session_take_replays(get(), tokens.data(), count(tokens.size())));
  }
  Result<void> set_sampling(const lathe_sampling& sampling) {
    return result_of(lathe_session_set_sampling(get(), &sampling));
  }

  // Of a session whose part takes hidden states.
  Result<void> step_hidden(std::span<const float> state, std::int32_t token = -1) {
    return result_of(lathe_session_step_hidden(get(), state.data(), count(state.size()), token));
  }
  // `which`: LATHE_HIDDEN_...
  Result<void> read_hidden(std::int32_t which, std::span<float> to) {
    return result_of(lathe_session_read_hidden(get(), which, to.data(), count(to.size())));
  }
  Result<std::vector<lathe_step_time>> step_times() {
    std::int32_t steps = 0;
    if (lathe_session_get_step_times(get(), nullptr, 0, &steps) != LATHE_OK) return last_error();
    std::vector<lathe_step_time> times(static_cast<std::size_t>(steps));
    const lathe_status status = lathe_session_get_step_times(get(), times.data(), steps, &steps);
    return result_of(status, std::move(times));
  }
  struct RoundTrip {
    double least = 0, median = 0;  // microseconds
  };
  Result<RoundTrip> submit_round_trip(std::int32_t times) {
    RoundTrip trip;
    const lathe_status status =
        lathe_session_submit_round_trip(get(), times, &trip.least, &trip.median);
    return result_of(status, trip);
  }

  Result<void> read_kv(const lathe_kv_range& range, std::span<float> values) {
    return result_of(lathe_session_read_kv(get(), &range, values.data(), std::ssize(values)));
  }
  Result<void> write_kv(const lathe_kv_range& range, std::span<const float> values) {
    return result_of(lathe_session_write_kv(get(), &range, values.data(), std::ssize(values)));
  }
  // Keys and values of all layers, and how many vectors each layer has.
  struct Capture {
    std::int32_t vectors = 0;
    std::vector<float> keys, values;
  };
  Result<Capture> capture_kv(std::int32_t positions, std::int32_t most) {
    const auto of = info();
    if (!of) return of.error();
    Capture capture;
    if (lathe_session_capture_kv(get(), positions, most, nullptr, nullptr, 0, &capture.vectors))
      return last_error();
    const std::size_t floats =
        std::size_t(of->layers) * std::size_t(of->head_dim) * std::size_t(capture.vectors);
    capture.keys.resize(floats);
    capture.values.resize(floats);
    const lathe_status status =
        lathe_session_capture_kv(get(), positions, most, capture.keys.data(), capture.values.data(),
                                 std::int64_t(floats), &capture.vectors);
    return result_of(status, std::move(capture));
  }
  Result<void> reset() { return result_of(lathe_session_reset(get())); }
  Result<Snapshot> snapshot(std::int32_t length) {
    lathe_snapshot* taken = nullptr;
    if (lathe_session_snapshot(get(), length, &taken) != LATHE_OK) return last_error();
    return Snapshot(taken);
  }
  Result<void> restore(const Snapshot& snapshot) {
    return result_of(lathe_session_restore(get(), snapshot.get()));
  }
  Result<void> read_logits(std::int32_t first, std::span<float> to) {
    return result_of(lathe_session_read_logits(get(), first, to.data(), count(to.size())));
  }
  // `allowed`: a bit for each token; no words at all: every token is.
  Result<std::vector<lathe_scored_token>> likeliest(std::int32_t most,
                                                    std::span<const std::uint32_t> allowed = {}) {
    lathe_scored_token tokens[64];  // as many as can be asked for
    std::int32_t found = 0;
    if (lathe_session_get_likeliest(get(), allowed.data(), count(allowed.size()), most, tokens,
                                    &found) != LATHE_OK)
      return last_error();
    return std::vector<lathe_scored_token>(tokens, tokens + found);
  }
  Result<std::int32_t> likeliest_of(std::span<const std::int32_t> ids) {
    std::int32_t token = -1;
    const lathe_status status =
        lathe_session_get_likeliest_of(get(), ids.data(), count(ids.size()), &token);
    return result_of(status, token);
  }
  Result<std::int32_t> choose(std::span<const std::uint32_t> allowed) {
    std::int32_t token = -1;
    const lathe_status status =
        lathe_session_choose(get(), allowed.data(), count(allowed.size()), &token);
    return result_of(status, token);
  }

 private:
  static std::int32_t count(std::size_t values) { return static_cast<std::int32_t>(values); }
  using Handle::Handle;
};

}  // namespace v0
}  // namespace lathe::api

#include "lathe/cpp/batch.hpp"
#include "lathe/cpp/dense.hpp"
