// Owns the C functions about sessions.
#include "runtime/c_api/objects.h"
#include "runtime/c_api/session_values.h"

using namespace lathe;
using namespace lathe::c_api;

lathe_status lathe_session_open(const lathe_model* model, const lathe_session_options* options,
                                lathe_session** session) {
  return guarded([&]() -> Result<void> {
    LATHE_NOT_NULL(session);
    LATHE_ASSIGN(const ModelObject* of, find<ModelObject>(model));
    LATHE_ASSIGN(const auto given, read_optional_struct(options, "lathe_session_options"));
    LATHE_ASSIGN(const SessionOptions wanted, session_options_of(given, *of));
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

lathe_status lathe_session_get_choice(const lathe_session* session, std::int32_t index,
                                      lathe_choice* choice) {
  return with_session(session, [&](Session& open) -> Result<void> {
    LATHE_ASSIGN(const lathe_choice found, choice_of(open.report(), index));
    return write_struct(found, choice, "lathe_choice");
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
