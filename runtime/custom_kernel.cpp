// Owns the making of a caller's own kernel: disk cache, compiler, assembler, load.
#include <fmt/format.h>

#include <utility>

#include "runtime/cached_kernel.h"
#include "runtime/module_map.h"

namespace lathe {
namespace {

// Launches check pointers by these; the rest of a Param describes Lathe's own kernels.
std::vector<Param> launch_params(const CustomKernel& custom) {
  std::vector<Param> params;
  for (const CustomParam& param : custom.params) {
    params.push_back({.name = param.name.c_str(),
                      .access = Access::read_write,
                      .element = Element::f32,
                      .bytes = 0,
                      .alignment = param.alignment});
  }
  return params;
}

Error about(Error error, const CustomKernel& custom) {
  return std::move(error).with("kernel", custom.name).with("entry", custom.entry);
}

}  // namespace

Result<Kernel> ModuleMap::make(std::shared_ptr<const CustomKernel> custom) {
  LATHE_ASSIGN(ContextScope scope, context_.enter());
  const Target& target = context_.target();
  const bool compiled = custom->language == SourceLanguage::cuda;
  KernelInfo info;
  info.name = custom->name;
  info.geometry = custom->geometry;
  info.route = compiled ? Route::nvrtc : Route::text;
  info.compiler = "none";
  if (compiled) {
    LATHE_ASSIGN(info.compiler, toolchain_.compiler(Route::nvrtc));
  }
  const auto load_cubin = [&](const Cubin& cubin) {
    Result<Kernel> kernel = load(info, launch_params(*custom), custom->entry, cubin);
    if (kernel) kernel->custom = custom;
    return kernel;
  };

  // The device sources are in reach of an #include, hence the fingerprint.
  const std::string key = fmt::format("lathe custom 1\n{} ptx {}\n{}\n{}\n{}\n{}", target.name(),
                                      target.ptx_version(), info.compiler, toolchain_.fingerprint(),
                                      toolchain_.assembler().name(), custom->source);
  if (const auto known = cache_ ? cache_->find(key) : std::nullopt) {
    info.from_cache = true;
    if (auto kernel = load_cubin(*known)) {
      tell(custom->name, kernel->info);
      return kernel;
    }
    info.from_cache = false;
  }
  const Result<Ptx> ptx = toolchain_.emit(*custom, target);
  if (!ptx) return about(ptx.error(), *custom);
  const Result<Cubin> cubin = assemble(custom->name, ptx.value().text, info);
  if (!cubin) return about(cubin.error(), *custom);
  Result<Kernel> kernel = load_cubin(cubin.value());
  if (!kernel) return about(std::move(kernel).error(), *custom);
  if (cache_) keep_cubin(*cache_, key, cubin.value());
  tell(custom->name, kernel->info);
  return kernel;
}

}  // namespace lathe
