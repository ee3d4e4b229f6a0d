// Owns emit(): checks a key, takes it through one route and heads the PTX with what it is.
#include "lathe/codegen/emit.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/back_edges.h"
#include "codegen/device_sources.h"
#include "codegen/routes.h"
#include "codegen/stopwatch.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lathe {
namespace {

// What a reader of the PTX wants to know first: key, target, route, launch shape, parameters.
std::string header_comment(const KernelKey& key, const Ptx& ptx) {
  const KernelRow& kernel = row(key.type);
  const Geometry& g = ptx.geometry;
  std::string out = fmt::format(
      "// {}\n// {}\n// target {}, route {} ({})\n"
      "// launch: grid {} x {}, {} threads, {} bytes of dynamic shared memory\n// parameters:\n",
      key.text(), kernel.summary, ptx.target.name(), route_name(ptx.route), ptx.compiler, g.grid_x,
      g.grid_y, g.threads, g.shared_bytes);
  static constexpr const char* accesses[] = {"read", "written", "read and written"};
  for (const Param& param : kernel.params(key))
    out += fmt::format("//   {:10} {}, {} bytes{}, {}-byte aligned\n", param.name,
                       accesses[static_cast<int>(param.access)], param.bytes,
                       param.per_position ? " per cached position"
                       : param.per_page   ? " per page of the sequences"
                                          : "",
                       param.alignment);
  return out + "\n";
}

Result<std::string> lower(const KernelKey& key, const Target& target, Route route,
                          const Compilers& compilers) {
  switch (route) {
    case Route::nvrtc: {
      LATHE_ASSIGN(const Nvrtc* nvrtc, load_nvrtc(compilers.state()));
      return nvrtc_ptx(key, target, *nvrtc);
    }
    case Route::llvm: {
      LATHE_ASSIGN(const LlvmPlugin* plugin, load_llvm(compilers.state()));
      return llvm_ptx(key, target, *plugin);
    }
    case Route::text:
      return template_ptx(key, target);
  }
  return Error{Code::internal, "a route without a lowering", {}};
}

}  // namespace

Compilers::Compilers(CompilerPaths paths) : state_(std::make_unique<State>()) {
  state_->paths = std::move(paths);
}
Compilers::~Compilers() = default;

Result<void> Compilers::available(Route route) const {
  if (Result<std::string> name = version(route); !name) return std::move(name).error();
  return {};
}

Result<std::string> Compilers::version(Route route) const {
  switch (route) {
    case Route::nvrtc: {
      LATHE_ASSIGN(const Nvrtc* nvrtc, load_nvrtc(*state_));
      return nvrtc->version;
    }
    case Route::llvm: {
      LATHE_ASSIGN(const LlvmPlugin* plugin, load_llvm(*state_));
      return llvm_version(*plugin);
    }
    case Route::text:
      return std::string("PTX templates");
  }
  return Error{Code::internal, "a route without a compiler", {}};
}

Result<std::string> Compilers::library(Route route) const {
  switch (route) {
    case Route::nvrtc: {
      LATHE_ASSIGN(const Nvrtc* nvrtc, load_nvrtc(*state_));
      return nvrtc->library.path();
    }
    case Route::llvm: {
      LATHE_ASSIGN(const LlvmPlugin* plugin, load_llvm(*state_));
      return llvm_library(*plugin);
    }
    case Route::text:
      return std::string();
  }
  return Error{Code::internal, "a route without a compiler", {}};
}

Result<Ptx> emit(const KernelKey& key, const Target& wanted, Route route,
                 const Compilers& compilers) {
  const Stopwatch emitting;
  LATHE_TRY(check_key(key));
  LATHE_TRY(route_covers(key, route));
  LATHE_TRY(target_covers(key, wanted));
  Target target = wanted;
  target.ptx = std::max(target.ptx, instructions_of(key).ptx);
  Ptx ptx;
  ptx.entry = key.symbol();
  ptx.geometry = row(key.type).geometry(key);
  ptx.route = route;
  ptx.target = target;
  LATHE_ASSIGN(ptx.compiler, compilers.version(route));
  Result<std::string> body = lower(key, target, route, compilers);
  if (!body)
    return std::move(body)
        .error()
        .with("key", key.text())
        .with("target", target.name())
        .with("route", route_name(route));
  ptx.text = header_comment(key, ptx) + for_assembler(std::move(*body), target);
  ptx.milliseconds = emitting.milliseconds();
  return ptx;
}

Result<Ptx> emit_first(const KernelKey& key, const Target& target, std::span<const Route> order,
                       const Compilers& compilers) {
  Error refusals{Code::not_eligible, fmt::format("no route lowers {}", key.text()), {}};
  for (Route route : order) {
    Result<Ptx> ptx = emit(key, target, route, compilers);
    if (ptx) return ptx;
    refusals.details.push_back({route_name(route), ptx.error().message});
    for (Detail& detail : ptx.error().details)
      if (detail.name == "log") refusals.details.push_back(std::move(detail));
  }
  return refusals;
}

std::string codegen_fingerprint() {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  constexpr std::string_view generator = LATHE_GENERATOR_DIGEST;
  XXH3_128bits_update(&state, generator.data(), generator.size());
  for (const SourceFile& file : device_sources()) {
    XXH3_128bits_update(&state, file.name.data(), file.name.size());
    XXH3_128bits_update(&state, file.text.data(), file.text.size());
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace lathe
