// Owns the kernel level: keys, PTX, loaded kernels. The comments of lathe/c/kernel.h hold.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "device.h"

namespace lathe::python {
namespace {

using namespace nb::literals;

enum class Access : std::int32_t {};  // its numbers are the C header's
enum class Element : std::int32_t {};

struct Parameter {
  std::string name;
  std::int64_t bytes;
  Access access;
  Element element;
  int alignment;
  bool per_position, may_alias, scratch, per_page;
};

Parameter parameter_of(const lathe_parameter& c) {
  return {c.name,           c.bytes,
          Access(c.access), Element(c.element),
          c.alignment,      c.per_position != 0,
          c.may_alias != 0, c.scratch != 0,
          c.per_page != 0};
}

std::vector<Parameter> parameters_of(const api::Key& key) {
  const auto info = value_of(key.info());
  std::vector<Parameter> parameters;
  for (int i = 0; i < info.parameter_count; ++i)
    parameters.push_back(parameter_of(value_of(key.parameter(i))));
  return parameters;
}

std::string repr(const api::Key& key) {
  return std::string("Key('") + value_of(key.info()).text + "')";
}

void bind_values(nb::module_& module) {
  nb::enum_<Route>(module, "Route", nb::is_arithmetic(), "Ways from a key to PTX.")
      .value("DEFAULT", Route(LATHE_ROUTE_DEFAULT))
      .value("NVRTC", Route(LATHE_ROUTE_NVRTC))
      .value("LLVM", Route(LATHE_ROUTE_LLVM))
      .value("TEXT", Route(LATHE_ROUTE_TEXT));
  nb::enum_<Access>(module, "Access", nb::is_arithmetic(), "What a kernel does with a buffer.")
      .value("READ", Access(LATHE_ACCESS_READ))
      .value("WRITE", Access(LATHE_ACCESS_WRITE))
      .value("READ_WRITE", Access(LATHE_ACCESS_READ_WRITE));
  nb::enum_<Element>(module, "Element", nb::is_arithmetic(), "What a buffer holds.")
      .value("F32", Element(LATHE_ELEMENT_F32))
      .value("I32", Element(LATHE_ELEMENT_I32))
      .value("BLOCKS", Element(LATHE_ELEMENT_BLOCKS))
      .value("TILES", Element(LATHE_ELEMENT_TILES))
      .value("KV", Element(LATHE_ELEMENT_KV));
  nb::enum_<Language>(module, "Language", nb::is_arithmetic(), "Of a kernel of your own.")
      .value("CUDA", Language(LATHE_LANGUAGE_CUDA))
      .value("PTX", Language(LATHE_LANGUAGE_PTX));
  nb::class_<lathe_geometry>(module, "Geometry", "Launch shape: one-dimensional blocks.")
      .def(
          "__init__",
          [](lathe_geometry* self, std::uint32_t grid_x, std::uint32_t threads,
             std::uint32_t grid_y, std::uint32_t shared_bytes) {
            new (self) lathe_geometry{grid_x, grid_y, threads, shared_bytes};
          },
          "grid_x"_a, "threads"_a, "grid_y"_a = 1, "shared_bytes"_a = 0)
      .def_ro("grid_x", &lathe_geometry::grid_x)
      .def_ro("grid_y", &lathe_geometry::grid_y)
      .def_ro("threads", &lathe_geometry::threads)
      .def_ro("shared_bytes", &lathe_geometry::shared_bytes);
  nb::class_<Parameter>(module, "Parameter", "One device pointer that a kernel takes.")
      .def_ro("name", &Parameter::name)
      .def_ro("bytes", &Parameter::bytes,
              "That the kernel may touch; of a KV cache, per cached position; of a table of its\n"
              "pages, per page of the sequences.")
      .def_ro("access", &Parameter::access)
      .def_ro("element", &Parameter::element)
      .def_ro("alignment", &Parameter::alignment, "Of the address, in bytes.")
      .def_ro("per_position", &Parameter::per_position)
      .def_ro("may_alias", &Parameter::may_alias)
      .def_ro("scratch", &Parameter::scratch)
      .def_ro("per_page", &Parameter::per_page);
}

void bind_emission(nb::module_& module) {
  using Info = lathe_key_info;
  nb::class_<api::Key>(module, "Key", "A kernel's name, parsed.")
      .def(
          "__init__",
          [](api::Key* self, const std::string& text) {
            new (self) api::Key(value_of(api::Key::parse(text)));
          },
          "text"_a)
      .def_prop_ro("text", info_member<&Info::text, api::Key>())
      .def_prop_ro("entry", info_member<&Info::entry, api::Key>(), "Its name in PTX.")
      .def_prop_ro("type", info_member<&Info::type, api::Key>())
      .def_prop_ro("summary", info_member<&Info::summary, api::Key>())
      .def_prop_ro("geometry", info_member<&Info::geometry, api::Key>())
      .def_prop_ro("min_compute", info_member<&Info::min_compute, api::Key>(),
                   "First compute capability that has its instructions, 90 for 9.0; 0: any.")
      .def_prop_ro("bytes_read", info_member<&Info::bytes_read, api::Key>())
      .def_prop_ro("bytes_written", info_member<&Info::bytes_written, api::Key>())
      .def_prop_ro("operations", info_member<&Info::operations, api::Key>())
      .def_prop_ro("error_bound", info_member<&Info::error_bound, api::Key>(),
                   "Relative L2 error allowed against double precision.")
      .def_prop_ro("parameters", &parameters_of, "In the order of a launch.")
      .def("__str__", info_member<&Info::text, api::Key>())
      .def("__repr__", &repr);
  using Text = lathe_ptx_info;
  nb::class_<api::Ptx>(module, "Ptx", "The PTX of one kernel.")
      .def_prop_ro("text", info_member<&Text::text, api::Ptx>())
      .def_prop_ro("entry", info_member<&Text::entry, api::Ptx>())
      .def_prop_ro("target", info_member<&Text::target, api::Ptx>())
      .def_prop_ro("compiler", info_member<&Text::compiler, api::Ptx>())
      .def_prop_ro("geometry", info_member<&Text::geometry, api::Ptx>())
      .def_prop_ro("route", [](const api::Ptx& ptx) { return Route(value_of(ptx.info()).route); })
      .def_prop_ro("milliseconds", info_member<&Text::milliseconds, api::Ptx>())
      .def("__str__", info_member<&Text::text, api::Ptx>());
  nb::class_<api::Compilers>(module, "Compilers", "What makes PTX, loaded on first use.")
      .def(
          "__init__",
          [](api::Compilers* self, const std::optional<std::string>& nvrtc,
             const std::optional<std::string>& llvm) {
            auto options = api::sized<lathe_compiler_options>();
            options.nvrtc = or_null(nvrtc);
            options.llvm = or_null(llvm);
            new (self) api::Compilers(value_of(api::Compilers::open(options)));
          },
          "nvrtc"_a = nb::none(), "llvm"_a = nb::none())
      .def(
          "emit",
          [](const api::Compilers& self, const api::Key& key, const std::string& target,
             Route route) {
            return value_of(
                unlocked([&] { return self.emit(key, target, api::Route(number(route))); }));
          },
          "key"_a, "target"_a, "route"_a = Route(LATHE_ROUTE_DEFAULT))
      .def(
          "version",
          [](const api::Compilers& self, Route route) {
            return std::string(
                value_of(unlocked([&] { return self.version(api::Route(number(route))); })));
          },
          "route"_a);
}

void bind_loaded(nb::module_& module) {
  using Loaded = lathe_kernel_info;
  nb::class_<api::Kernel>(module, "Kernel", "A kernel loaded in a device.")
      .def_prop_ro("name", info_member<&Loaded::name, api::Kernel>())
      .def_prop_ro("compiler", info_member<&Loaded::compiler, api::Kernel>())
      .def_prop_ro("geometry", info_member<&Loaded::geometry, api::Kernel>())
      .def_prop_ro("route",
                   [](const api::Kernel& kernel) { return Route(value_of(kernel.info()).route); })
      .def_prop_ro(
          "from_cache",
          [](const api::Kernel& kernel) { return value_of(kernel.info()).from_cache != 0; })
      .def_prop_ro("registers", info_member<&Loaded::registers, api::Kernel>())
      .def_prop_ro("local_bytes", info_member<&Loaded::local_bytes, api::Kernel>())
      .def_prop_ro("shared_bytes", info_member<&Loaded::shared_bytes, api::Kernel>())
      .def_prop_ro("cubin_bytes", info_member<&Loaded::cubin_bytes, api::Kernel>())
      .def_prop_ro(
          "emit_ms", info_member<&Loaded::emit_ms, api::Kernel>(),
          "Of the compiler; 0 where it was not needed. Likewise the assembler, the driver.")
      .def_prop_ro("assemble_ms", info_member<&Loaded::assemble_ms, api::Kernel>())
      .def_prop_ro("load_ms", info_member<&Loaded::load_ms, api::Kernel>())
      .def(
          "launch",
          [](const api::Kernel& self, const std::vector<std::uint64_t>& arguments,
             std::uintptr_t stream) {
            expect(self.launch(arguments, reinterpret_cast<CUstream_st*>(stream)));
          },
          "arguments"_a, "stream"_a);
}

}  // namespace

void bind_kernels(nb::module_& module) {
  bind_values(module);
  bind_emission(module);
  bind_loaded(module);
  bind_devices(module);
}

}  // namespace lathe::python
