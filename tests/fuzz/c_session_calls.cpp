// Owns the fuzzer's calls about model files, sessions, parts of models and steps in captures.
#include <cmath>
#include <limits>

#include "tests/fuzz/c_caller.h"
#include "tests/plan/tiny_models.h"

namespace lathe::fuzz {
namespace {

constexpr int kHidden = 64;  // of both models

const std::vector<std::byte>& plain_image() {
  static const std::vector<std::byte> bytes = testing::tiny_model(testing::tiny_llama()).bytes;
  return bytes;
}
// Of a shape and a format that fused kernels and batches take.
const std::vector<std::byte>& fusible_image() {
  static const std::vector<std::byte> bytes =
      testing::tiny_model(testing::fusible(testing::tiny_llama())).bytes;
  return bytes;
}

void tell(void*, const char* what, std::int64_t done, std::int64_t total) {
  require(what && done >= 0 && done <= total);
}

void open_model(Caller& c) {
  auto options = api::sized<lathe_model_options>();
  options.integrity = c.number(-1, 3);
  c.resize(options);
  const lathe_model_options* given = c.one_of(4) ? &options : nullptr;
  const std::vector<std::byte>& image = c.one_of(2) ? fusible_image() : plain_image();
  const std::string written = scratch_folder() + "/model";
  switch (c.one_of(6)) {
    case 0: {
      const std::string& bytes = c.bytes(2048);  // which stay as long as the model
      return c.open<lathe_model>([&](lathe_model** out) {
        return lathe_model_adopt(bytes.data(), bytes.size(), c.text("fuzzed"), given, out);
      });
    }
    case 1:
      return c.open<lathe_model>([&](lathe_model** out) {
        return lathe_model_open_bytes(c.rarely() ? nullptr : image.data(), image.size(),
                                      c.text("tiny"), out);
      });
    case 2:
      return c.open<lathe_model>([&](lathe_model** out) {
        return lathe_model_open_with(c.rarely() ? nullptr : written.c_str(), given, out);
      });
    case 3: {
      constexpr const char* kNoModels[] = {"/nowhere/model.gguf", "/", "/dev/null", ""};
      const char* path = kNoModels[c.one_of(4)];
      return c.open<lathe_model>(
          [&](lathe_model** out) { return lathe_model_open(c.rarely() ? nullptr : path, out); });
    }
    default:
      return c.open<lathe_model>([&](lathe_model** out) {
        return lathe_model_adopt(image.data(), image.size(), c.text("tiny"), given, out);
      });
  }
}

void run_tokens(Caller& c) {
  std::array<std::int32_t, 12> stops;
  for (std::int32_t& each : stops) each = c.token();
  const std::int32_t count = c.input.ConsumeIntegralInRange(-1, kMostTokens);
  auto* const tokens = c.room<std::int32_t>(count);
  if (c.one_of(4) == 0)
    return Caller::seen(lathe_session_generate(c.any<lathe_session>(), c.token(), tokens, count));
  auto run = api::sized<lathe_run_options>();
  run.stops = c.one_of(2) ? stops.data() : nullptr;
  run.stop_count = c.input.ConsumeIntegralInRange(-1, int(stops.size()));
  if (c.one_of(2)) run.listener = [](void*, std::int32_t) {};
  bool cancelled = c.one_of(2);
  run.cancel_user = &cancelled;
  if (c.one_of(2)) run.cancel = [](void* user) { return std::int32_t(*static_cast<bool*>(user)); };
  std::uint32_t word = c.input.ConsumeIntegral<std::uint32_t>();
  run.constraint_user = &word;
  if (c.one_of(2))
    run.constraint = [](void* user, const std::int32_t*, std::int32_t, std::uint32_t* allowed,
                        std::int32_t words) {
      for (std::int32_t i = 0; i < words; ++i) allowed[i] = *static_cast<std::uint32_t*>(user);
    };
  std::int32_t chosen = 0;
  const lathe_status status =
      lathe_session_generate_until(c.any<lathe_session>(), c.token(), c.one_of(2) ? &run : nullptr,
                                   tokens, count, c.place(chosen));
  Caller::seen(status);
  require(status != LATHE_OK || (chosen >= 0 && chosen <= count));
}

void hidden_states(Caller& c) {
  const std::int32_t count = c.one_of(4) ? kHidden : c.input.ConsumeIntegralInRange(-1, kHidden);
  auto* const state = c.room<float>(count);
  if (c.one_of(2))
    return Caller::seen(
        lathe_session_read_hidden(c.any<lathe_session>(), c.number(-1, 2), state, count));
  if (state) state[0] = c.input.ConsumeFloatingPointInRange(-2.0f, 2.0f);
  Caller::seen(lathe_session_step_hidden(c.any<lathe_session>(), state, count, c.token()));
}

void times_of_steps(Caller& c) {
  if (c.one_of(2)) {
    double least = 0, median = 0;
    return Caller::seen(lathe_session_submit_round_trip(c.any<lathe_session>(), c.number(-1, 4),
                                                        c.place(least), c.place(median)));
  }
  std::int32_t count = 0;
  const std::int32_t room = c.input.ConsumeIntegralInRange(-1, 128);
  const lathe_status status = lathe_session_get_step_times(
      c.any<lathe_session>(), c.one_of(2) ? c.room<lathe_step_time>(room) : nullptr, room,
      c.place(count));
  Caller::seen(status);
  require(status != LATHE_OK || count >= 0);
}

// A step recorded from the caller's stream, replayed and taken; and what a capture refuses.
void replay(Caller& c) {
  lathe_session* session = c.any<lathe_session>();
  const CUstream stream = c.stream();
  c.driver().begin_capture(stream);
  if (c.one_of(4) == 0) Caller::seen(lathe_session_step(session, c.token()));
  const lathe_status recorded = lathe_session_record_step(session);
  const testing::FakeRecording recording = c.driver().end_capture(stream);
  Caller::seen(recorded);
  const lathe_status begun = lathe_session_begin_replays(session, c.token());
  Caller::seen(begun);
  const int times = c.one_of(4);
  if (recorded == LATHE_OK && begun == LATHE_OK)
    for (int i = 0; i < times; ++i) c.driver().replay(recording, stream);
  const int taken = c.one_of(2) ? times : c.one_of(9) - 1;
  Caller::seen(lathe_session_take_replays(session, c.room<std::int32_t>(taken), taken));
  c.wait_for(stream);
}

void ask(Caller& c) {
  switch (c.one_of(5)) {
    case 0: {
      const float* logits = nullptr;
      std::int32_t count = 0;
      return Caller::seen(
          lathe_session_get_logits(c.any<lathe_session>(), c.place(logits), c.place(count)));
    }
    case 1: {
      std::int32_t token = 0;
      return Caller::seen(lathe_session_get_sampled(c.any<lathe_session>(), c.place(token)));
    }
    case 2: {
      std::int32_t length = 0;
      return Caller::seen(lathe_session_get_length(c.any<lathe_session>(), c.place(length)));
    }
    case 3: {
      const char* note = nullptr;
      return Caller::seen(
          lathe_session_get_note(c.any<lathe_session>(), c.number(-1, 3), c.place(note)));
    }
    default:
      return c.fill<lathe_choice>([&](auto* to) {
        return lathe_session_get_choice(c.any<lathe_session>(), c.number(-1, 20), to);
      });
  }
}

}  // namespace

void choose_session(Caller& c, SessionChoice& choice) {
  lathe_session_options& options = choice.options;
  options.executor = c.rarely() ? c.number(-1, 6) : LATHE_EXECUTOR_CPU;
  if (c.one_of(2)) {
    options.device = c.any<lathe_device>();
    constexpr std::int32_t kOnDevice[] = {LATHE_EXECUTOR_EAGER, LATHE_EXECUTOR_GRAPH,
                                          LATHE_EXECUTOR_AUTO};
    options.executor = kOnDevice[c.one_of(3)];
    if (options.device && c.one_of(2)) options.stream = c.stream();
  }
  options.fusion = c.number(-1, 3);
  options.kv_format = c.number(-1, 3);
  options.context = c.input.ConsumeIntegralInRange(-1, kMostContext);
  options.attention_splits = c.one_of(4) ? 0 : c.number(-1, 65);
  options.threads = c.input.ConsumeIntegralInRange(-1, 2);
  options.chunk = c.one_of(2) ? 0 : c.number(-2, 32);
  constexpr std::int32_t kLimits[] = {0, -1, 600000, -2};
  options.wait_limit_ms = kLimits[c.one_of(4)];
  if (c.one_of(2)) options.progress = tell;
  choice.cancelled = c.rarely();
  options.cancel_user = &choice.cancelled;
  if (c.one_of(2))
    options.cancel = [](void* user) { return std::int32_t(*static_cast<bool*>(user)); };
  if (c.one_of(8) == 0) {
    options.weights_user = &c;
    options.weights = [](void* user, const char* tensor, std::int32_t,
                         std::int64_t bytes) -> std::uint64_t {
      auto& caller = *static_cast<Caller*>(user);
      require(tensor && bytes > 0);
      if (bytes > Caller::kDeviceBytes || caller.one_of(2)) return 0;
      return caller.device_memory() + std::uint64_t(caller.rarely());
    };
  } else if (c.one_of(8) == 0) {
    constexpr double kParities[] = {0.5, -1, 2, std::numeric_limits<double>::quiet_NaN()};
    options.parity = kParities[c.one_of(4)];
  }
  if (c.one_of(4) == 0) {
    choice.part.first_layer = c.number(-1, 2);
    choice.part.layers = c.number(-1, 2);
    choice.part.input = c.number(-1, 2);
    choice.part.output = c.number(-1, 2);
    choice.part.blocks = c.number(-1, 3);
    choice.part.no_residual = c.number(-1, 2);
    c.resize(choice.part);
    options.part = &choice.part;
  }
  if (c.one_of(8) == 0) {
    choice.atoms.count = c.number(-1, 40);
    choice.atoms.terms = c.number(-1, 4);
    choice.atoms.value_count = std::size_t(c.one_of(2) ? 0 : c.one_of(65));
    if (!c.rarely()) choice.atoms.values = c.room<float>(64);
    c.resize(choice.atoms);
    options.atoms = &choice.atoms;
  }
  options.time_steps = c.one_of(4) ? 0 : c.number(-1, 2);
  options.tuning = c.one_of(2) ? nullptr : c.text("gemv.warps=2,matvec.stages=1");
  c.resize(options);
}

void open_session(Caller& c) {
  SessionChoice choice;
  choose_session(c, choice);
  c.open<lathe_session>([&](lathe_session** out) {
    return lathe_session_open(c.any<lathe_model>(), c.rarely() ? nullptr : &choice.options, out);
  });
}

void open_usual_session(Caller& c) {
  auto options = api::sized<lathe_session_options>();
  options.executor = c.one_of(2) ? LATHE_EXECUTOR_GRAPH : LATHE_EXECUTOR_EAGER;
  options.kv_format = c.one_of(3);
  options.context = 32;
  options.device = c.last<lathe_device>();
  options.stream = options.device ? c.stream() : nullptr;
  c.open<lathe_session>([&](lathe_session** out) {
    return lathe_session_open(c.last<lathe_model>(), &options, out);
  });
}

void open_usual_models(Caller& c) {
  for (const std::vector<std::byte>* image : {&plain_image(), &fusible_image()}) {
    lathe_model* model = nullptr;
    Caller::seen(lathe_model_open_bytes(image->data(), image->size(), "tiny", &model));
    c.keep(model);
  }
}

void call_models(Caller& c) {
  switch (c.one_of(6)) {
    case 0:
      return c.fill<lathe_model_report>([&](auto* report) {
        return lathe_model_get_report(c.any<lathe_model>(), c.number(-1, 100), c.number(-1, 4),
                                      report);
      });
    case 1:
      return c.fill<lathe_model_info>(
          [&](auto* info) { return lathe_model_get_info(c.any<lathe_model>(), info); });
    case 2: {
      const std::string to = scratch_folder() + (c.rarely() ? "/no/model" : "/model");
      return Caller::seen(lathe_model_convert(c.any<lathe_model>(),
                                              c.rarely() ? nullptr : to.c_str(),
                                              c.one_of(2) ? tell : nullptr, nullptr));
    }
    default:
      return open_model(c);
  }
}

void call_sessions(Caller& c) {
  switch (c.one_of(12)) {
    case 0:
      return open_session(c);
    case 1:
      return c.fill<lathe_session_info>(
          [&](auto* info) { return lathe_session_get_info(c.any<lathe_session>(), info); });
    case 2:
      return Caller::seen(lathe_session_step(c.any<lathe_session>(), c.token()));
    case 3: {
      const auto tokens = c.tokens();
      return Caller::seen(lathe_session_feed(c.any<lathe_session>(),
                                             c.one_of(8) ? tokens.data() : nullptr,
                                             c.input.ConsumeIntegralInRange(-1, kMostTokens)));
    }
    case 4:
    case 5:
      return run_tokens(c);
    case 6:
      return Caller::seen(
          lathe_session_rollback(c.any<lathe_session>(), c.number(-2, kMostContext + 1)));
    case 7:
      return hidden_states(c);
    case 8:
      return times_of_steps(c);
    case 9:
      return replay(c);
    default:
      return ask(c);
  }
}

}  // namespace lathe::fuzz
