// Owns the C functions about model files and the sessions that decode them.
#include "runtime/c_api/objects.h"

using namespace lathe;
using namespace lathe::c_api;

namespace {

Result<ExecutorKind> executor_of(std::int32_t number) {
  switch (number) {
    case LATHE_EXECUTOR_DEFAULT:
    case LATHE_EXECUTOR_GRAPH:
      return ExecutorKind::graph;
    case LATHE_EXECUTOR_EAGER:
      return ExecutorKind::eager;
    case LATHE_EXECUTOR_MEGA:
      return ExecutorKind::mega;
    case LATHE_EXECUTOR_CPU:
      return ExecutorKind::cpu;
    case LATHE_EXECUTOR_AUTO:
      return ExecutorKind::automatic;
  }
  return unknown_number("executor", number);
}

Result<Fusion> fusion_of(std::int32_t number) {
  switch (number) {
    case LATHE_FUSION_AUTOMATIC:
      return Fusion::automatic;
    case LATHE_FUSION_NONE:
      return Fusion::none;
    case LATHE_FUSION_FULL:
      return Fusion::full;
  }
  return unknown_number("fusion", number);
}

Result<Format> kv_format_of(std::int32_t number) {
  switch (number) {
    case LATHE_KV_F32:
      return Format::f32;
    case LATHE_KV_F16:
      return Format::f16;
    case LATHE_KV_Q8_0:
      return Format::q8_0;
  }
  return unknown_number("KV format", number);
}

Result<SessionOptions> options_of(const lathe_session_options& given) {
  SessionOptions options;
  LATHE_ASSIGN(options.executor, executor_of(given.executor));
  LATHE_ASSIGN(options.plan.fusion, fusion_of(given.fusion));
  LATHE_ASSIGN(options.plan.kv, kv_format_of(given.kv_format));
  options.plan.context = given.context;
  options.plan.attention_splits = given.attention_splits;
  if (given.chunk != 0) options.plan.chunk = given.chunk == -1 ? 0 : given.chunk;
  options.threads = given.threads;
  if (given.device) {
    LATHE_ASSIGN(const DeviceObject* device, find<DeviceObject>(given.device));
    options.kernels = device->device;
  }
  options.stream = given.stream;
  options.progress = progress_of(given.progress, given.progress_user);
  options.cancelled = cancelled_of(given.cancel, given.cancel_user);
  return options;
}

Result<lathe_model*> open_model(std::shared_ptr<const GgufFile> file) {
  Result<ModelSpec> spec = read_model_spec(*file);
  return open_handle(
      std::unique_ptr<ModelObject>(new ModelObject{std::move(file), std::move(spec)}));
}

// Runs the body of a function on an open session.
template <typename Body>
lathe_status with_session(const lathe_session* session, const Body& body) {
  return guarded([&]() -> Result<void> {
    LATHE_ASSIGN(const SessionObject* object, find<SessionObject>(session));
    return body(*object->session);
  });
}

}  // namespace

lathe_status lathe_model_open(const char* path, lathe_model** model) {
  return guarded([&]() -> Result<void> {
    LATHE_NOT_NULL(path);
    LATHE_NOT_NULL(model);
    LATHE_ASSIGN(auto file, GgufFile::open(path));
    LATHE_ASSIGN(*model, open_model(std::move(file)));
    return {};
  });
}

lathe_status lathe_model_open_bytes(const void* bytes, std::size_t byte_count, const char* name,
                                    lathe_model** model) {
  return guarded([&]() -> Result<void> {
    LATHE_NOT_NULL(bytes);
    LATHE_NOT_NULL(name);
    LATHE_NOT_NULL(model);
    const std::span given(static_cast<const std::byte*>(bytes), byte_count);
    LATHE_ASSIGN(auto file, GgufFile::from_bytes(given, name));
    LATHE_ASSIGN(*model, open_model(std::move(file)));
    return {};
  });
}

lathe_status lathe_model_close(lathe_model* model) {
  return guarded([&] { return close<ModelObject>(model); });
}

lathe_status lathe_model_get_info(const lathe_model* model, lathe_model_info* info) {
  return guarded([&]() -> Result<void> {
    LATHE_ASSIGN(const ModelObject* object, find<ModelObject>(model));
    if (!object->spec) return object->spec.error();
    const ModelSpec& spec = object->spec.value();
    return write_struct({.struct_size = 0,
                         .path = object->file->path().c_str(),
                         .architecture = spec.architecture.c_str(),
                         .name = spec.name.c_str(),
                         .layers = spec.layers,
                         .hidden = spec.hidden,
                         .heads = spec.heads,
                         .kv_heads = spec.kv_heads,
                         .head_dim = spec.head_dim,
                         .vocabulary = spec.vocab,
                         .context = spec.context,
                         .tensor_count = std::int32_t(object->file->tensors().size())},
                        info, "lathe_model_info");
  });
}

lathe_status lathe_session_open(const lathe_model* model, const lathe_session_options* options,
                                lathe_session** session) {
  return guarded([&]() -> Result<void> {
    LATHE_NOT_NULL(session);
    LATHE_ASSIGN(const ModelObject* of, find<ModelObject>(model));
    LATHE_ASSIGN(const auto given, read_optional_struct(options, "lathe_session_options"));
    LATHE_ASSIGN(const SessionOptions wanted, options_of(given));
    auto object = std::make_unique<SessionObject>();
    LATHE_ASSIGN(object->session, Session::open(of->file, wanted));
    object->launches = object->session->plan().counts().launches;
    LATHE_ASSIGN(*session, open_handle(std::move(object)));
    return {};
  });
}

lathe_status lathe_session_close(lathe_session* session) {
  return guarded([&] { return close<SessionObject>(session); });
}

lathe_status lathe_session_get_info(const lathe_session* session, lathe_session_info* info) {
  return guarded([&]() -> Result<void> {
    LATHE_ASSIGN(const SessionObject* object, find<SessionObject>(session));
    const SessionReport& report = object->session->report();
    const Plan& plan = object->session->plan();
    return write_struct({.struct_size = 0,
                         .device = report.device.c_str(),
                         .executor = report.executor.c_str(),
                         .routes = report.routes.c_str(),
                         .assembler = report.assembler.c_str(),
                         .vocabulary = plan.spec.vocab,
                         .context = plan.options.context,
                         .launches = object->launches,
                         .kernels_built = report.kernels_built,
                         .kernels_from_cache = report.kernels_from_cache,
                         .note_count = std::int32_t(report.notes.size()),
                         .build_seconds = report.build_seconds,
                         .upload_seconds = report.upload_seconds,
                         .weight_bytes = report.weight_bytes,
                         .kv_bytes = report.kv_bytes,
                         .scratch_bytes = report.scratch_bytes,
                         .chunk = report.chunk,
                         .reserved = 0},
                        info, "lathe_session_info");
  });
}

lathe_status lathe_session_get_note(const lathe_session* session, std::int32_t index,
                                    const char** note) {
  return with_session(session, [&](Session& open) -> Result<void> {
    LATHE_NOT_NULL(note);
    const std::vector<std::string>& notes = open.report().notes;
    if (index < 0 || std::size_t(index) >= notes.size()) return unknown_number("note", index);
    *note = notes[std::size_t(index)].c_str();
    return {};
  });
}

lathe_status lathe_session_step(lathe_session* session, std::int32_t token) {
  return with_session(session, [&](Session& open) { return open.step(token); });
}

lathe_status lathe_session_feed(lathe_session* session, const std::int32_t* tokens,
                                std::int32_t count) {
  return with_session(session, [&](Session& open) -> Result<void> {
    LATHE_TRY(check_array(tokens, "tokens", count));
    return open.feed({tokens, std::size_t(count)});
  });
}

lathe_status lathe_session_generate(lathe_session* session, std::int32_t token,
                                    std::int32_t* tokens, std::int32_t count) {
  return with_session(session, [&](Session& open) -> Result<void> {
    LATHE_TRY(check_array(tokens, "tokens", count));
    return open.generate(token, {tokens, std::size_t(count)});
  });
}

lathe_status lathe_session_generate_until(lathe_session* session, std::int32_t token,
                                          const lathe_run_options* options, std::int32_t* tokens,
                                          std::int32_t count, std::int32_t* chosen) {
  return with_session(session, [&](Session& open) -> Result<void> {
    LATHE_TRY(check_array(tokens, "tokens", count));
    LATHE_NOT_NULL(chosen);
    LATHE_ASSIGN(const lathe_run_options run, read_optional_struct(options, "lathe_run_options"));
    LATHE_TRY(check_array(run.stops, "stops", run.stop_count));
    std::function<void(std::int32_t)> tell;
    if (run.listener) {
      tell = [&run](std::int32_t id) { run.listener(run.listener_user, id); };
    }
    LATHE_ASSIGN(*chosen, open.generate_until(token, {tokens, std::size_t(count)},
                                              {run.stops, std::size_t(run.stop_count)}, tell,
                                              cancelled_of(run.cancel, run.cancel_user)));
    return {};
  });
}

lathe_status lathe_session_get_sampled(lathe_session* session, std::int32_t* token) {
  return with_session(session, [&](Session& open) -> Result<void> {
    LATHE_NOT_NULL(token);
    LATHE_ASSIGN(*token, open.sampled());
    return {};
  });
}

lathe_status lathe_session_get_logits(lathe_session* session, const float** logits,
                                      std::int32_t* count) {
  return with_session(session, [&](Session& open) -> Result<void> {
    LATHE_NOT_NULL(logits);
    LATHE_NOT_NULL(count);
    LATHE_ASSIGN(const std::span<const float> values, open.logits());
    *logits = values.data();
    *count = std::int32_t(values.size());
    return {};
  });
}

lathe_status lathe_session_get_length(const lathe_session* session, std::int32_t* length) {
  return with_session(session, [&](Session& open) -> Result<void> {
    LATHE_NOT_NULL(length);
    *length = open.length();
    return {};
  });
}

lathe_status lathe_session_rollback(lathe_session* session, std::int32_t length) {
  return with_session(session, [&](Session& open) { return open.rollback(length); });
}

lathe_status lathe_session_set_sampling(lathe_session* session, const lathe_sampling* sampling) {
  return with_session(session, [&](Session& open) -> Result<void> {
    LATHE_ASSIGN(const auto given, read_optional_struct(sampling, "lathe_sampling"));
    Sampling rules;  // its defaults stand for the zeros
    rules.temperature = given.temperature;
    rules.top_k = given.top_k;
    if (given.top_p != 0) rules.top_p = given.top_p;
    rules.min_p = given.min_p;
    if (given.repeat_penalty != 0) rules.repeat_penalty = given.repeat_penalty;
    if (given.repeat_last != 0) rules.repeat_last = given.repeat_last;
    rules.seed = given.seed;
    return open.set_sampling(rules);
  });
}
