// Owns the checks of a caller's own kernel and its way to PTX.
#include "lathe/codegen/custom_kernel.h"

#include <fmt/format.h>

#include <bit>

#include "codegen/back_edges.h"
#include "codegen/routes.h"
#include "codegen/stopwatch.h"

namespace lathe {
namespace {

constexpr unsigned kMaxThreads = 1024;
constexpr std::size_t kMaxParams = 32;

Error wrong(const CustomKernel& kernel, std::string what) {
  return {Code::invalid_argument, fmt::format("Kernel {}: {}.", kernel.name, what), {}};
}

}  // namespace

Result<void> check_custom_kernel(const CustomKernel& kernel) {
  if (kernel.name.empty()) return Error{Code::invalid_argument, "A kernel has no name.", {}};
  if (kernel.source.empty()) return wrong(kernel, "its source is empty");
  if (kernel.entry.empty()) return wrong(kernel, "its entry point has no name");
  const Geometry& g = kernel.geometry;
  if (g.grid_x == 0 || g.grid_y == 0) return wrong(kernel, "its grid is empty");
  if (g.threads == 0 || g.threads > kMaxThreads)
    return wrong(kernel,
                 fmt::format("a block has 1 to {} threads, not {}", kMaxThreads, g.threads));
  if (kernel.params.size() > kMaxParams)
    return wrong(kernel,
                 fmt::format("{} parameters are more than {}", kernel.params.size(), kMaxParams));
  for (const CustomParam& param : kernel.params) {
    if (param.alignment != 0 &&
        (param.alignment < 0 || !std::has_single_bit(static_cast<unsigned>(param.alignment))))
      return wrong(kernel, fmt::format("parameter {} is aligned to {}, which is no power of two",
                                       param.name, param.alignment));
  }
  return {};
}

Result<Ptx> emit_custom_kernel(const CustomKernel& kernel, const Target& target,
                               const Compilers& compilers) {
  LATHE_TRY(check_custom_kernel(kernel));
  const Stopwatch emitting;
  Ptx ptx;
  ptx.entry = kernel.entry;
  ptx.geometry = kernel.geometry;
  ptx.target = target;
  if (kernel.language == SourceLanguage::ptx) {
    ptx.route = Route::text;
    ptx.compiler = "none";
    ptx.text = kernel.source;
    return ptx;
  }
  ptx.route = Route::nvrtc;
  LATHE_ASSIGN(const Nvrtc* nvrtc, load_nvrtc(compilers.state()));
  ptx.compiler = nvrtc->version;
  LATHE_ASSIGN(std::string text, nvrtc_compile_custom(kernel.source, kernel.name, target, *nvrtc));
  ptx.text = for_assembler(std::move(text), target);
  ptx.milliseconds = emitting.milliseconds();
  return ptx;
}

}  // namespace lathe
