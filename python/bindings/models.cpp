// Owns model files: what is in one, and its conversion. The comments of lathe/c/engine.h hold.
#include <nanobind/stl/string.h>

#include <cstddef>
#include <span>
#include <string>

#include "engine.h"

namespace lathe::python {
namespace {

using namespace nb::literals;

enum class Integrity : std::int32_t {};  // its numbers are the C header's

template <auto member>
auto model_member() {
  return [](const Model& model) { return value_of(model.handle.info()).*member; };
}

// Copied, for the C struct's strings live no longer than its handle.
struct ModelReport {
  std::string container, largest_tensor;
  lathe_model_report numbers;
};

ModelReport report_of(const Model& model, int context, KvFormat kv_format) {
  const lathe_model_report report = value_of(model.handle.report(context, number(kv_format)));
  return {report.container, report.largest_tensor, report};
}

template <auto member>
auto report_member() {
  return [](const ModelReport& report) { return report.numbers.*member; };
}

void convert(const Model& model, const std::string& path, nb::object progress) {
  Callback callback(std::move(progress));
  const auto done = unlocked([&] {
    return api::result_of(
        lathe_model_convert(model.handle.get(), path.c_str(), tell_progress, &callback));
  });
  callback.rethrow();
  expect(done);
}

lathe_model_options model_options(Integrity integrity) {
  auto options = api::sized<lathe_model_options>();
  options.integrity = number(integrity);
  return options;
}

void bind_report(nb::module_& module) {
  using Report = lathe_model_report;
  nb::class_<ModelReport>(module, "ModelReport", "What is in a model file, and what it takes.")
      .def_ro("container", &ModelReport::container)
      .def_prop_ro("version", report_member<&Report::version>())
      .def_prop_ro(
          "decodes", [](const ModelReport& report) { return report.numbers.decodes != 0; },
          "False: opening a session says why not.")
      .def_prop_ro("file_bytes", report_member<&Report::file_bytes>())
      .def_prop_ro("data_offset", report_member<&Report::data_offset>())
      .def_prop_ro("tensor_bytes", report_member<&Report::tensor_bytes>())
      .def_ro("largest_tensor", &ModelReport::largest_tensor)
      .def_prop_ro("largest_tensor_bytes", report_member<&Report::largest_tensor_bytes>())
      .def_prop_ro("kv_bytes", report_member<&Report::kv_bytes>(),
                   "Of a KV cache for `context` positions.")
      .def_prop_ro("context", report_member<&Report::context>())
      .def_prop_ro("layers", report_member<&Report::layers>())
      .def_prop_ro("heads", report_member<&Report::heads>())
      .def_prop_ro("kv_heads", report_member<&Report::kv_heads>());
}

void bind_model(nb::module_& module) {
  using Info = lathe_model_info;
  nb::class_<Model>(module, "Model", "A GGUF file or a P64 container, mapped and checked.")
      .def(
          "__init__",
          [](Model* self, const std::string& path, Integrity integrity) {
            const lathe_model_options options = model_options(integrity);
            new (self)
                Model{value_of(unlocked([&] { return api::Model::open(path, options); })), {}};
          },
          "path"_a, "integrity"_a = Integrity(LATHE_INTEGRITY_METADATA))
      .def_static(
          "from_bytes",
          [](const nb::bytes& bytes, const std::string& name, Integrity integrity) {
            const std::span given(static_cast<const std::byte*>(bytes.data()), bytes.size());
            return Model{value_of(api::Model::open(given, name, model_options(integrity))), bytes};
          },
          "bytes"_a, "name"_a = "bytes", "integrity"_a = Integrity(LATHE_INTEGRITY_METADATA),
          "The same of bytes in memory.")
      .def("report", &report_of, "context"_a = 0, "kv_format"_a = KvFormat(LATHE_KV_F16),
           "What is in the file; context 0 is a session's.")
      .def("convert", &convert, "path"_a, "progress"_a = nb::none(),
           nb::sig(
               "def convert(self, path: str, progress: collections.abc.Callable[[str, int, int], "
               "object] | None = None) -> None"),
           "Writes a GGUF file's model as P64, and a P64 file's as GGUF; whole or not at all.")
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

void bind_numbers(nb::module_& module) {
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
  nb::enum_<Integrity>(module, "Integrity", nb::is_arithmetic(),
                       "Which checksums of a P64 file are computed when it is opened.")
      .value("METADATA", Integrity(LATHE_INTEGRITY_METADATA), "All but those of the tensors.")
      .value("FULL", Integrity(LATHE_INTEGRITY_FULL), "All: reads the whole file.")
      .value("STRUCTURE", Integrity(LATHE_INTEGRITY_STRUCTURE), "None.");
}

}  // namespace

void bind_models(nb::module_& module) {
  bind_numbers(module);
  bind_report(module);
  bind_model(module);
}

}  // namespace lathe::python
