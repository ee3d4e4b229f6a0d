// Owns the text of a kernel's entry point in CUDA C++: parameters, launch bounds and one call of an
// op with the shape as literals.
#include <fmt/format.h>

#include <bit>

#include "lathe/codegen/emit.h"

namespace lathe {
namespace {

std::string parameter_text(const KernelKey& key, const Param& param) {
  const bool read = param.access == Access::read;
  const char* type = param.element == Element::f32   ? "float"
                     : param.element == Element::i32 ? "int"
                                                     : "unsigned char";
  return fmt::format("{}{}*{} {}", read ? "const " : "", type,
                     is_constant(key, param) ? " __restrict__" : "", param.name);
}

std::string argument_text(const OpArgument& argument, std::span<const Param> params) {
  switch (argument.kind) {
    case OpArgument::Kind::parameter:
      return params[static_cast<std::size_t>(argument.integer)].name;
    case OpArgument::Kind::null:
      return "nullptr";
    case OpArgument::Kind::integer:
      return fmt::format("{}", argument.integer);
    case OpArgument::Kind::real:
      return fmt::format("lathe::dev::as_f32(0x{:08x}u /* {} */)",
                         std::bit_cast<std::uint32_t>(argument.real), argument.real);
  }
  return {};
}

}  // namespace

Result<std::string> cuda_source(const KernelKey& key) {
  LATHE_TRY(check_key(key));
  const KernelRow& kernel = row(key.type);
  const std::vector<Param> params = kernel.params(key);
  const OpCall call = kernel.call(key);
  std::string parameters, arguments;
  for (const Param& param : params)
    parameters += (parameters.empty() ? "" : ", ") + parameter_text(key, param);
  for (const OpArgument& argument : call.arguments)
    arguments += (arguments.empty() ? "" : ", ") + argument_text(argument, params);
  // Without a number of blocks per multiprocessor ptxas aims at an occupancy of its own and spills
  // to reach it.
  const Geometry launch = kernel.geometry(key);
  return fmt::format(
      "#include \"{}\"\n\n"
      "extern \"C\" __global__ void __launch_bounds__({}, {})\n{}({}) {{\n{}"
      "  lathe::dev::{}({});\n}}\n",
      call.header, launch.threads, launch.resident, key.symbol(), parameters,
      waits_at_once(key, call)
          ? "  lathe::dev::allow_dependents();\n  lathe::dev::wait_for_predecessor();\n"
          : "",
      call.function, arguments);
}

}  // namespace lathe
