// Owns the C functions about parts of models, hidden states and the time of steps. The comments of
// lathe/c/pass.h hold.
#include "lathe/c/pass.h"

#include "runtime/c_api/session_values.h"

using namespace lathe;
using namespace lathe::c_api;

lathe_status lathe_session_step_hidden(lathe_session* session, const float* state,
                                       std::int32_t count, std::int32_t token) {
  return with_session(session, [&](Session& open) -> Result<void> {
    LATHE_TRY(check_array(state, "state", count));
    return open.step_hidden({state, std::size_t(count)}, token);
  });
}

lathe_status lathe_session_read_hidden(lathe_session* session, std::int32_t which, float* state,
                                       std::int32_t count) {
  return with_session(session, [&](Session& open) -> Result<void> {
    if (which != LATHE_HIDDEN_STREAM && which != LATHE_HIDDEN_NORMED)
      return unknown_number("hidden state", which);
    LATHE_TRY(check_array(state, "state", count));
    return open.read_hidden(
        which == LATHE_HIDDEN_NORMED ? HiddenState::normed : HiddenState::stream,
        {state, std::size_t(count)});
  });
}

lathe_status lathe_session_get_step_times(lathe_session* session, lathe_step_time* steps,
                                          std::int32_t room, std::int32_t* count) {
  return guarded([&]() -> Result<void> {
    LATHE_ASSIGN(SessionObject * object, find<SessionObject>(session));
    LATHE_NOT_NULL(count);
    Session& open = *object->session;
    LATHE_ASSIGN(const std::vector<double> times, open.step_times());
    if (steps && room < std::ssize(times))
      return Error{Code::invalid_argument,
                   fmt::format("There is room for {} steps, and there are {}.", room, times.size()),
                   {}};
    *count = std::int32_t(times.size());
    if (!steps) return {};
    if (object->kernels.empty())
      for (const Step& step : open.plan().steps) object->kernels.push_back(step.key.text());
    for (std::size_t i = 0; i < times.size(); ++i) {
      const Step& step = open.plan().steps[i];
      steps[i] = {step.label.c_str(), object->kernels[i].c_str(), step.layer, 0, times[i]};
    }
    return {};
  });
}

lathe_status lathe_session_submit_round_trip(lathe_session* session, std::int32_t times,
                                             double* least, double* median) {
  return with_session(session, [&](Session& open) -> Result<void> {
    LATHE_NOT_NULL(least);
    LATHE_NOT_NULL(median);
    LATHE_ASSIGN(const RoundTrip trip, open.submit_round_trip(times));
    *least = trip.least;
    *median = trip.median;
    return {};
  });
}
