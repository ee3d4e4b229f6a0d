// Owns the LLVM route's side in the library: a request for liblathe_llvm.so, loaded at run time.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "codegen/llvm/lathe_llvm.h"
#include "codegen/routes.h"

namespace lathe {

struct LlvmPlugin {
  DynamicLibrary library;
  decltype(&lathe_llvm_emit) emit = nullptr;
  decltype(&lathe_llvm_version) version = nullptr;
};

namespace {

Result<std::shared_ptr<const LlvmPlugin>> open_llvm(const std::string& path) {
  const std::vector<std::string> names = {path.empty() ? "liblathe_llvm.so" : path};
  LATHE_ASSIGN(DynamicLibrary library, DynamicLibrary::open(names));
  LlvmPlugin plugin{.library = std::move(library)};
  if (!plugin.library.bind(plugin.emit, "lathe_llvm_emit") ||
      !plugin.library.bind(plugin.version, "lathe_llvm_version"))
    return Error{Code::not_found, plugin.library.name() + " is not Lathe's LLVM plugin", {}};
  return std::make_shared<const LlvmPlugin>(std::move(plugin));
}

LatheLlvmParameter request_parameter(const KernelKey& key, const Param& param) {
  const bool read = param.access == Access::read;
  return {param.name,
          (read ? LATHE_LLVM_READONLY : 0) | (is_constant(key, param) ? LATHE_LLVM_NOALIAS : 0),
          param.alignment};
}

LatheLlvmArgument request_argument(const OpArgument& argument) {
  static constexpr int kinds[] = {LATHE_LLVM_PARAMETER, LATHE_LLVM_NULL, LATHE_LLVM_INTEGER,
                                  LATHE_LLVM_REAL};
  return {kinds[static_cast<int>(argument.kind)], argument.integer, argument.real};
}

}  // namespace

Result<const LlvmPlugin*> load_llvm(Compilers::State& state) {
  const std::lock_guard lock(state.mutex);
  if (!state.llvm)
    state.llvm =
        std::make_unique<Result<std::shared_ptr<const LlvmPlugin>>>(open_llvm(state.paths.llvm));
  if (!*state.llvm) return state.llvm->error();
  return state.llvm->value().get();
}

std::string llvm_version(const LlvmPlugin& plugin) {
  return plugin.version();
}

const std::string& llvm_library(const LlvmPlugin& plugin) {
  return plugin.library.path();
}

Result<std::string> llvm_ptx(const KernelKey& key, const Target& target, const LlvmPlugin& plugin) {
  const KernelRow& kernel = row(key.type);
  const OpCall call = kernel.call(key);
  const std::vector<Param> params = kernel.params(key);
  std::vector<LatheLlvmParameter> parameters;
  std::vector<LatheLlvmArgument> arguments;
  for (const Param& param : params) parameters.push_back(request_parameter(key, param));
  std::ranges::transform(call.arguments, std::back_inserter(arguments), request_argument);
  const std::string entry = key.symbol();
  const Geometry launch = kernel.geometry(key);
  const LatheLlvmRequest request = {
      .struct_size = sizeof(LatheLlvmRequest),
      .function = call.function.c_str(),
      .entry = entry.c_str(),
      .parameters = parameters.data(),
      .parameter_count = static_cast<int>(parameters.size()),
      .arguments = arguments.data(),
      .argument_count = static_cast<int>(arguments.size()),
      .threads = static_cast<int>(launch.threads),
      .resident = static_cast<int>(launch.resident),
      .compute = target.compute,
      .accelerated = target.accelerated,
      .ptx = target.ptx,
      .waits = waits_at_once(key, call),
  };
  std::string text;
  const auto reply = [](void* user, const char* data, unsigned long bytes) {
    static_cast<std::string*>(user)->assign(data, bytes);
  };
  if (plugin.emit(&request, reply, &text) == 0) return text;
  return Error{Code::compile,
               fmt::format("{} could not compile {}", plugin.version(), key.text()),
               {{"log", text}}};
}

}  // namespace lathe
