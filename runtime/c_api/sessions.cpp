// Owns the C functions about model files and the sessions that decode them.
#include "runtime/c_api/objects.h"
#include "runtime/c_api/session_values.h"

using namespace lathe;
using namespace lathe::c_api;

namespace {

Result<lathe_model*> open_model(std::shared_ptr<const GgufFile> file) {
  Result<ModelSpec> spec = read_model_spec(*file);
  return open_handle(
      std::unique_ptr<ModelObject>(new ModelObject{std::move(file), std::move(spec)}));
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
    LATHE_ASSIGN(const SessionOptions wanted, session_options_of(given));
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
    return write_struct(
        session_info_of(object->session->report(), object->session->plan(), object->launches), info,
        "lathe_session_info");
  });
}

lathe_status lathe_session_get_note(const lathe_session* session, std::int32_t index,
                                    const char** note) {
  return with_session(session, [&](Session& open) -> Result<void> {
    LATHE_NOT_NULL(note);
    LATHE_ASSIGN(*note, note_of(open.report(), index));
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
    const std::span<std::int32_t> to(tokens, std::size_t(count));
    const std::span<const std::int32_t> stops(run.stops, std::size_t(run.stop_count));
    const auto cancelled = cancelled_of(run.cancel, run.cancel_user);
    if (!run.constraint) {
      LATHE_ASSIGN(*chosen, open.generate_until(token, to, stops, tell, cancelled));
      return {};
    }
    const Constraint constraint = [&run](std::span<const std::int32_t> so_far,
                                         std::span<std::uint32_t> allowed) {
      run.constraint(run.constraint_user, so_far.data(), std::int32_t(so_far.size()),
                     allowed.data(), std::int32_t(allowed.size()));
    };
    LATHE_ASSIGN(*chosen, open.generate_constrained(token, to, stops, constraint, tell, cancelled));
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

lathe_status lathe_session_record_step(lathe_session* session) {
  return with_session(session, [&](Session& open) { return open.record_step(); });
}

lathe_status lathe_session_begin_replays(lathe_session* session, std::int32_t token) {
  return with_session(session, [&](Session& open) { return open.begin_replays(token); });
}

lathe_status lathe_session_take_replays(lathe_session* session, std::int32_t* tokens,
                                        std::int32_t count) {
  return with_session(session, [&](Session& open) -> Result<void> {
    LATHE_TRY(check_array(tokens, "tokens", count));
    return open.take_replays({tokens, std::size_t(count)});
  });
}

lathe_status lathe_session_set_sampling(lathe_session* session, const lathe_sampling* sampling) {
  return with_session(session, [&](Session& open) -> Result<void> {
    LATHE_ASSIGN(const auto given, read_optional_struct(sampling, "lathe_sampling"));
    return open.set_sampling(sampling_of(given));
  });
}
