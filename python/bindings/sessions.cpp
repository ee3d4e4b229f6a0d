// Owns the engine level: model files and sessions. The comments of lathe/c/engine.h hold.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>

#include "engine.h"

namespace lathe::python {
namespace {

using namespace nb::literals;

template <auto member>
auto model_member() {
  return [](const Model& model) { return value_of(model.handle.info()).*member; };
}

template <auto member>
auto session_member() {
  return [](Session& session) {
    return session.use([](api::Session& open) { return value_of(open.info()).*member; });
  };
}

void open_session(Session* self, const nb::handle& model, Executor executor, Fusion fusion,
                  KvFormat kv_format, int context, int attention_splits, int threads,
                  const api::Device* device, std::uintptr_t stream, nb::object progress) {
  Callback callback(std::move(progress));
  const lathe_session_options options = session_options(
      executor, fusion, kv_format, context, attention_splits, threads, device, stream, callback);
  const Model& of = nb::cast<const Model&>(model);
  auto opened = unlocked([&] { return api::Session::open(of.handle, options); });
  callback.rethrow();
  new (self) Session("session", value_of(std::move(opened)), nb::borrow(model));
}

// What a run of tokens asks of Python: a listener that may say no, which tokens are allowed, and
// Ctrl-C.
struct Run {
  Callback listener;
  Callback constraint;
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
  return run.stopped || run.listener.failed() || run.constraint.failed();
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
                                   nb::object constraint) {
  const std::size_t wanted = checked_count(count);
  const int context = self.use([](api::Session& open) { return value_of(open.info()).context; });
  // More than there is room for is refused before anything is written.
  std::vector<std::int32_t> tokens(count > context ? 1 : wanted);
  Run run{Callback(std::move(listener)), Callback(std::move(constraint))};
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
    tokens.resize(std::size_t(value_of(chosen)));
  });
  return tokens;
}

Floats<1> logits(Session& self) {
  return copied(self.run([](api::Session& session) { return session.logits(); }));
}

std::vector<std::string> notes(Session& self) {
  return self.use([](api::Session& session) {
    std::vector<std::string> notes;
    const auto info = value_of(session.info());
    for (int i = 0; i < info.note_count; ++i) notes.emplace_back(value_of(session.note(i)));
    return notes;
  });
}

void set_sampling(Session& self, float temperature, int top_k, float top_p, float min_p,
                  float repeat_penalty, int repeat_last, std::uint64_t seed) {
  const lathe_sampling sampling =
      sampling_of(temperature, top_k, top_p, min_p, repeat_penalty, repeat_last, seed);
  self.use([&](api::Session& session) { expect(session.set_sampling(sampling)); });
}

void bind_model(nb::module_& module) {
  using Info = lathe_model_info;
  nb::class_<Model>(module, "Model", "A GGUF file or a P64 container, mapped and checked.")
      .def(
          "__init__",
          [](Model* self, const std::string& path) {
            new (self) Model{value_of(unlocked([&] { return api::Model::open(path); })), {}};
          },
          "path"_a)
      .def_static(
          "from_bytes",
          [](const nb::bytes& bytes, const std::string& name) {
            const std::span given(static_cast<const std::byte*>(bytes.data()), bytes.size());
            return Model{value_of(api::Model::open(given, name)), bytes};
          },
          "bytes"_a, "name"_a = "bytes", "The same of bytes in memory.")
      .def_prop_ro("path", model_member<&Info::path>())
      .def_prop_ro("architecture", model_member<&Info::architecture>())
      .def_prop_ro("name", model_member<&Info::name>())
      .def_prop_ro("layers", model_member<&Info::layers>())
      .def_prop_ro("hidden", model_member<&Info::hidden>())
      .def_prop_ro("heads", model_member<&Info::heads>())
      .def_prop_ro("kv_heads", model_member<&Info::kv_heads>())
      .def_prop_ro("head_dim", model_member<&Info::head_dim>())
      .def_prop_ro("vocabulary", model_member<&Info::vocabulary>())
      .def_prop_ro("context", model_member<&Info::context>())
      .def_prop_ro("tensor_count", model_member<&Info::tensor_count>());
}

void bind_options(nb::module_& module) {
  nb::enum_<Executor>(module, "Executor", nb::is_arithmetic(), "What runs a token.")
      .value("EAGER", Executor(LATHE_EXECUTOR_EAGER), "A launch per step.")
      .value("GRAPH", Executor(LATHE_EXECUTOR_GRAPH), "The same launches, recorded and replayed.")
      .value("MEGA", Executor(LATHE_EXECUTOR_MEGA), "One persistent kernel for whole tokens.")
      .value("CPU", Executor(LATHE_EXECUTOR_CPU), "No GPU, slower.")
      .value("AUTO", Executor(LATHE_EXECUTOR_AUTO), "Mega where it applies, else graph.");
  nb::enum_<Fusion>(module, "Fusion", nb::is_arithmetic(), "How much one kernel does.")
      .value("AUTOMATIC", Fusion(LATHE_FUSION_AUTOMATIC))
      .value("NONE", Fusion(LATHE_FUSION_NONE))
      .value("FULL", Fusion(LATHE_FUSION_FULL));
  nb::enum_<KvFormat>(module, "KvFormat", nb::is_arithmetic(), "How keys and values are kept.")
      .value("F32", KvFormat(LATHE_KV_F32))
      .value("F16", KvFormat(LATHE_KV_F16))
      .value("Q8_0", KvFormat(LATHE_KV_Q8_0));
  nb::enum_<KvPart>(module, "KvPart", nb::is_arithmetic(), "Which half of a KV cache.")
      .value("KEYS", KvPart(LATHE_PART_KEYS))
      .value("VALUES", KvPart(LATHE_PART_VALUES));
}

}  // namespace

lathe_session_options session_options(Executor executor, Fusion fusion, KvFormat kv_format,
                                      int context, int attention_splits, int threads,
                                      const api::Device* device, std::uintptr_t stream,
                                      Callback& callback) {
  auto options = api::sized<lathe_session_options>();
  options.executor = number(executor);
  options.fusion = number(fusion);
  options.kv_format = number(kv_format);
  options.context = context;
  options.attention_splits = attention_splits;
  options.threads = threads;
  options.device = device ? device->get() : nullptr;
  options.stream = reinterpret_cast<CUstream_st*>(stream);
  options.progress = tell_progress;
  options.progress_user = &callback;
  options.cancel = [](void* user) -> std::int32_t {
    const nb::gil_scoped_acquire acquired;
    auto& told = *static_cast<Callback*>(user);
    told.notice_signals();
    return told.failed();
  };
  options.cancel_user = &callback;
  return options;
}

void bind_sessions(nb::module_& module) {
  bind_model(module);
  bind_options(module);
  bind_snapshots(module);
  using Info = lathe_session_info;
  nb::class_<Session> session(module, "Session", "One sequence at batch 1, one thread at a time.");
  session
      .def(
          "__init__", &open_session, "model"_a, "executor"_a, "fusion"_a, "kv_format"_a,
          "context"_a, "attention_splits"_a, "threads"_a, "device"_a.none(), "stream"_a,
          "progress"_a.none(),
          nb::sig("def __init__(self, model: Model, executor: Executor, fusion: Fusion, kv_format: "
                  "KvFormat, context: int, attention_splits: int, threads: int, device: Device | "
                  "None, stream: int, progress: collections.abc.Callable[[str, int, int], object] "
                  "| None) -> None"))
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
      .def_prop_ro("upload_seconds", session_member<&Info::upload_seconds>())
      .def_prop_ro("weight_bytes", session_member<&Info::weight_bytes>())
      .def_prop_ro("kv_bytes", session_member<&Info::kv_bytes>())
      .def_prop_ro("scratch_bytes", session_member<&Info::scratch_bytes>())
      .def_prop_ro("notes", &notes)
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
           nb::kw_only(), "constraint"_a.none(),
           nb::sig(
               "def generate(self, token: int, count: int, stops: collections.abc.Sequence[int], "
               "listener: collections.abc.Callable[[int], object] | None, *, constraint: "
               "collections.abc.Callable[[list[int]], object] | None) -> list[int]"))
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
}

}  // namespace lathe::python
