// Owns sessions. The comments of lathe/c/engine.h hold.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "engine.h"

namespace lathe::python {
namespace {

using namespace nb::literals;

// Count, terms, and of the values the address, 0 for none, and how many there are.
using GivenAtoms = std::tuple<int, int, std::uintptr_t, std::size_t>;

template <auto member>
auto session_member() {
  return [](Session& session) {
    return session.use([](api::Session& open) { return value_of(open.info()).*member; });
  };
}

void open_session(Session* self, const nb::handle& model, Executor executor, Fusion fusion,
                  KvFormat kv_format, int context, int attention_splits, int threads, int chunk,
                  int wait_limit_ms, const nb::object& device, std::uintptr_t stream,
                  const lathe_model_part* part, double parity, bool time_steps, nb::object progress,
                  nb::object cancel, Opening::Weights weights, const nb::object& owner,
                  const std::string& tuning, const std::optional<GivenAtoms>& atoms) {
  Opening opening(std::move(progress), std::move(cancel), std::move(weights));
  lathe_session_options options =
      session_options({executor, fusion, kv_format, context, attention_splits, threads, chunk,
                       wait_limit_ms, nb::cast<const Device*>(device), stream, tuning.c_str()},
                      opening);
  options.part = part;
  options.parity = parity;
  options.time_steps = time_steps ? 1 : 0;
  auto dictionary = api::sized<lathe_kv_atoms>();
  if (atoms) {
    const auto [count, terms, values, value_count] = *atoms;
    dictionary.count = count;
    dictionary.terms = terms;
    dictionary.values = reinterpret_cast<const float*>(values);
    dictionary.value_count = value_count;
    options.atoms = &dictionary;
  }
  const Model& of = nb::cast<const Model&>(model);
  auto opened = unlocked([&] { return api::Session::open(of.handle, options); });
  opening.rethrow();
  new (self) Session("session", value_of(std::move(opened)), nb::make_tuple(model, device, owner));
}

// What a run of tokens asks of Python: a listener that may say no, which tokens are allowed, and
// Ctrl-C.
struct Run {
  Callback listener;
  Callback constraint;
  Callback cancel;
  bool stopped = false;
};

void tell_token(void* user, std::int32_t token) {
  const nb::gil_scoped_acquire acquired;
  Run& run = *static_cast<Run*>(user);
  if (run.stopped) return;
  run.stopped = run.listener.call(token).is(nb::handle(Py_False));
}

std::int32_t run_is_over(void* user) {
  const nb::gil_scoped_acquire acquired;
  Run& run = *static_cast<Run*>(user);
  run.listener.notice_signals();
  return run.stopped || run.listener.failed() || run.constraint.failed() || says_yes(run.cancel) ||
         run.cancel.failed();
}

// What the function returns are the words.
void constrain(void* user, const std::int32_t* chosen, std::int32_t count, std::uint32_t* allowed,
               std::int32_t words) {
  const nb::gil_scoped_acquire acquired;
  Run& run = *static_cast<Run*>(user);
  run.constraint.try_to([&](const nb::object& function) {
    const nb::object answer = function(std::vector<std::int32_t>(chosen, chosen + count));
    GivenWords set;
    if (!nb::try_cast(answer, set, false))
      throw nb::value_error("The constraint must return what token_set() makes.");
    if (set.size() != std::size_t(words))
      throw nb::value_error("The constraint's set of tokens has another size than token_set()'s.");
    std::copy_n(set.data(), set.size(), allowed);
  });
}

std::vector<std::int32_t> generate(Session& self, std::int32_t token, int count,
                                   const std::vector<std::int32_t>& stops, nb::object listener,
                                   nb::object constraint, nb::object cancel) {
  const std::size_t wanted = checked_count(count);
  const int context = self.use([](api::Session& open) { return value_of(open.info()).context; });
  // More than there is room for is refused before anything is written.
  std::vector<std::int32_t> tokens(count > context ? 1 : wanted);
  Run run{Callback(std::move(listener)), Callback(std::move(constraint)),
          Callback(std::move(cancel))};
  auto options = api::sized<lathe_run_options>();
  options.stops = stops.data();
  options.stop_count = std::int32_t(stops.size());
  options.listener = run.listener.given() ? tell_token : nullptr;
  options.listener_user = &run;
  options.cancel = run_is_over;
  options.cancel_user = &run;
  options.constraint = run.constraint.given() ? constrain : nullptr;
  options.constraint_user = &run;
  self.use([&](api::Session& session) {
    const auto chosen = unlocked([&] {
      return session.generate_until(token, {tokens.data(), wanted}, options);
    });
    run.listener.rethrow();
    run.constraint.rethrow();
    run.cancel.rethrow();
    tokens.resize(std::size_t(value_of(chosen)));
  });
  return tokens;
}

std::vector<std::int32_t> take_replays(Session& self, int count) {
  std::vector<std::int32_t> tokens(checked_count(count));
  self.use([&](api::Session& session) {
    expect(unlocked([&] { return session.take_replays(tokens); }));
  });
  return tokens;
}

Floats<1> logits(Session& self) {
  return copied(self.run([](api::Session& session) { return session.logits(); }));
}

void set_sampling(Session& self, float temperature, int top_k, float top_p, float min_p,
                  float repeat_penalty, int repeat_last, std::uint64_t seed) {
  const lathe_sampling sampling =
      sampling_of(temperature, top_k, top_p, min_p, repeat_penalty, repeat_last, seed);
  self.use([&](api::Session& session) { expect(session.set_sampling(sampling)); });
}

}  // namespace

void bind_sessions(nb::module_& module) {
  bind_snapshots(module);
  bind_part(module);
  using Info = lathe_session_info;
  nb::class_<Session> session(module, "Session", "One sequence at batch 1, one thread at a time.");
  session
      .def(
          "__init__", &open_session, "model"_a, "executor"_a, "fusion"_a, "kv_format"_a,
          "context"_a, "attention_splits"_a, "threads"_a, "chunk"_a, "wait_limit_ms"_a,
          "device"_a.none(), "stream"_a, "part"_a.none(), "parity"_a, "time_steps"_a,
          "progress"_a.none(), "cancel"_a.none(), "weights"_a, "owner"_a.none(), "tuning"_a,
          "atoms"_a.none(),
          nb::sig("def __init__(self, model: Model, executor: Executor, fusion: Fusion, kv_format: "
                  "KvFormat, context: int, attention_splits: int, threads: int, chunk: int, "
                  "wait_limit_ms: int, device: Device | None, stream: int, part: Part | None, "
                  "parity: float, time_steps: bool, progress: "
                  "collections.abc.Callable[[str, int, int], object] | None, cancel: "
                  "collections.abc.Callable[[], object] | None, weights: dict[str, tuple[int, "
                  "int]], owner: object, tuning: str, atoms: tuple[int, int, int, int] | None) -> "
                  "None"))
      .def("close", &Session::close)
      .def_prop_ro("closed", &Session::closed)
      .def_prop_ro("device", session_member<&Info::device>())
      .def_prop_ro("executor", session_member<&Info::executor>())
      .def_prop_ro("routes", session_member<&Info::routes>())
      .def_prop_ro("assembler", session_member<&Info::assembler>())
      .def_prop_ro("vocabulary", session_member<&Info::vocabulary>())
      .def_prop_ro("context", session_member<&Info::context>())
      .def_prop_ro("layers", session_member<&Info::layers>())
      .def_prop_ro("kv_heads", session_member<&Info::kv_heads>())
      .def_prop_ro("head_dim", session_member<&Info::head_dim>())
      .def_prop_ro("launches", session_member<&Info::launches>())
      .def_prop_ro("kernels_built", session_member<&Info::kernels_built>())
      .def_prop_ro("kernels_from_cache", session_member<&Info::kernels_from_cache>())
      .def_prop_ro("build_seconds", session_member<&Info::build_seconds>())
      .def_prop_ro("build_wait_seconds", session_member<&Info::build_wait_seconds>(),
                   "Of build_seconds, how long the opening only waited; the rest is part of "
                   "upload_seconds too.")
      .def_prop_ro("upload_seconds", session_member<&Info::upload_seconds>())
      .def_prop_ro("weight_bytes", session_member<&Info::weight_bytes>())
      .def_prop_ro("borrowed_bytes", session_member<&Info::borrowed_bytes>(),
                   "Of weight_bytes, read where the caller's weights are.")
      .def_prop_ro("chunk", session_member<&Info::chunk>(),
                   "Tokens of a prompt read at once; 0: one by one, and a note says why.")
      .def_prop_ro("kv_bytes", session_member<&Info::kv_bytes>())
      .def_prop_ro("scratch_bytes", session_member<&Info::scratch_bytes>())
      .def_prop_ro("hidden_size", session_member<&Info::hidden>())
      .def_prop_ro("submissions", session_member<&Info::submissions>())
      .def_prop_ro("bytes_to_device", session_member<&Info::bytes_to_device>())
      .def_prop_ro("bytes_to_host", session_member<&Info::bytes_to_host>())
      .def_prop_ro("graph_key", session_member<&Info::graph_key>())
      .def_prop_ro("tuning", session_member<&Info::tuning>())
      .def_prop_ro("parity", session_member<&Info::parity>())
      .def_prop_ro("notes", &notes<api::Session>)
      .def_prop_ro("choices", &choices<api::Session>)
      .def(
          "step",
          [](Session& self, std::int32_t token) {
            self.use([&](api::Session& session) {
              expect(unlocked([&] { return session.step(token); }));
            });
          },
          "token"_a)
      .def(
          "feed",
          [](Session& self, const std::vector<std::int32_t>& tokens) {
            self.use([&](api::Session& session) {
              expect(unlocked([&] { return session.feed(tokens); }));
            });
          },
          "tokens"_a)
      .def("generate", &generate, "token"_a, "count"_a, "stops"_a, "listener"_a.none(),
           nb::kw_only(), "constraint"_a.none(), "cancel"_a.none(),
           nb::sig(
               "def generate(self, token: int, count: int, stops: collections.abc.Sequence[int], "
               "listener: collections.abc.Callable[[int], object] | None, *, constraint: "
               "collections.abc.Callable[[list[int]], object] | None, cancel: "
               "collections.abc.Callable[[], object] | None) -> list[int]"))
      .def(
          "record_step",
          [](Session& self) {
            self.use([](api::Session& session) { expect(session.record_step()); });
          },
          "Adds one token to the CUDA graph that is being captured from the session's stream.")
      .def(
          "begin_replays",
          [](Session& self, std::int32_t token) {
            self.use([&](api::Session& session) {
              expect(unlocked([&] { return session.begin_replays(token); }));
            });
          },
          "token"_a, "The next replays begin with `token` at the next position.")
      .def("take_replays", &take_replays, "count"_a,
           "Waits for the stream; the tokens that so many replays have chosen.")
      .def_prop_ro("sampled",
                   [](Session& self) {
                     return self.use([](api::Session& session) {
                       return value_of(unlocked([&] { return session.sampled(); }));
                     });
                   })
      .def("logits", &logits)
      .def_prop_ro(
          "length",
          [](Session& self) {
            return self.use([](api::Session& session) { return value_of(session.length()); });
          })
      .def(
          "rollback",
          [](Session& self, int length) {
            self.use([&](api::Session& session) { expect(session.rollback(length)); });
          },
          "length"_a)
      .def("set_sampling", &set_sampling, "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a,
           "repeat_penalty"_a, "repeat_last"_a, "seed"_a);
  bind_services(session);
  bind_parts(session);
}

}  // namespace lathe::python
