// Owns the NVRTC route: CUDA C++ text to PTX through libnvrtc, loaded at run time.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "codegen/device_sources.h"
#include "codegen/routes.h"

namespace lathe {
namespace {

Result<Nvrtc> open_nvrtc(const std::string& path) {
#ifndef LATHE_WITH_NVRTC
  return Error{Code::not_found, "This build of Lathe has no NVRTC route.", {}}.with(
      "hint", "build it with LATHE_WITH_NVRTC=ON, or ask for another route than nvrtc");
#endif
  std::vector<std::string> names = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
  if (!path.empty()) names = {path};
  LATHE_ASSIGN(DynamicLibrary library, DynamicLibrary::open(names));
  Nvrtc nvrtc{.library = std::move(library)};
  const DynamicLibrary& nv = nvrtc.library;
  int (*version)(int*, int*) = nullptr;
  if (!nv.bind(nvrtc.create_program, "nvrtcCreateProgram") ||
      !nv.bind(nvrtc.destroy_program, "nvrtcDestroyProgram") ||
      !nv.bind(nvrtc.compile_program, "nvrtcCompileProgram") ||
      !nv.bind(nvrtc.get_ptx_size, "nvrtcGetPTXSize") || !nv.bind(nvrtc.get_ptx, "nvrtcGetPTX") ||
      !nv.bind(nvrtc.get_log_size, "nvrtcGetProgramLogSize") ||
      !nv.bind(nvrtc.get_log, "nvrtcGetProgramLog") ||
      !nv.bind(nvrtc.get_error_string, "nvrtcGetErrorString") || !nv.bind(version, "nvrtcVersion"))
    return Error{Code::not_found, nv.name() + " is not an NVRTC library", {}};
  nvrtc.library.leak();  // what it allocated at its start is not given back when it is unloaded
  int major = 0, minor = 0;
  version(&major, &minor);
  nvrtc.version = fmt::format("NVRTC {}.{}", major, minor);
  // NVRTC opens its builtins by name alone: beside it in a folder that the dynamic linker does not
  // search, they are found only if they are there already.
  if (const std::size_t slash = nv.name().rfind('/'); slash != std::string::npos) {
    const std::string folder = nv.name().substr(0, slash);
    const std::string names[] = {
        fmt::format("{}/libnvrtc-builtins.so.{}.{}", folder, major, minor)};
    if (auto builtins = DynamicLibrary::open(names)) builtins->leak();
  }
  return nvrtc;
}

// Destroys the program on every way out.
struct Program {
  const Nvrtc& nvrtc;
  void* handle = nullptr;
  ~Program() {
    if (handle) nvrtc.destroy_program(&handle);
  }
};

std::string program_log(const Program& program) {
  std::size_t size = 0;
  if (program.nvrtc.get_log_size(program.handle, &size) != 0 || size < 2) return {};
  std::string log(size, '\0');
  program.nvrtc.get_log(program.handle, log.data());
  log.resize(size - 1);
  return log;
}

// NVRTC writes the PTX version of its own release. The device code uses nothing newer than the
// target's first version, so the older number lets older drivers take the same text, once the hints
// that NVRTC adds on its own are gone: `.pragma "used_bytes_mask ..."`, which came with PTX 8.3.
void lower_ptx_version(std::string& ptx, const Target& target) {
  std::string out;
  out.reserve(ptx.size());
  for (std::size_t at = 0; at < ptx.size();) {
    const std::size_t end = std::min(ptx.find('\n', at), ptx.size());
    const std::string_view line = std::string_view(ptx).substr(at, end - at);
    if (line.starts_with(".version ")) {
      out += ".version " + target.ptx_version() + '\n';
    } else if (target.ptx >= 83 || line.find("used_bytes_mask") == std::string_view::npos) {
      out.append(line) += '\n';
    }
    at = end + 1;
  }
  ptx = std::move(out);
}

}  // namespace

Result<const Nvrtc*> load_nvrtc(Compilers::State& state) {
  const std::lock_guard lock(state.mutex);
  if (!state.nvrtc) state.nvrtc = std::make_unique<Result<Nvrtc>>(open_nvrtc(state.paths.nvrtc));
  if (!*state.nvrtc) return state.nvrtc->error();
  return &state.nvrtc->value();
}

Result<std::string> nvrtc_ptx(const KernelKey& key, const Target& target, const Nvrtc& nvrtc) {
  LATHE_ASSIGN(const std::string source, cuda_source(key));
  return nvrtc_compile(source, key.text(), target, nvrtc);
}

Result<std::string> nvrtc_compile(const std::string& source, const std::string& what,
                                  const Target& target, const Nvrtc& nvrtc, bool calls_others) {
  LATHE_ASSIGN(std::string ptx, nvrtc_compile_custom(source, what, target, nvrtc, calls_others));
  lower_ptx_version(ptx, target);
  return ptx;
}

Result<std::string> nvrtc_compile_custom(const std::string& source, const std::string& what,
                                         const Target& target, const Nvrtc& nvrtc,
                                         bool calls_others) {
  std::vector<const char*> texts, names;
  for (const SourceFile& file : device_sources()) {
    if (!file.name.ends_with(".h")) continue;
    texts.push_back(file.text.data());
    names.push_back(file.name.data());
  }
  Program program{nvrtc};
  const std::string name = what + ".cu";
  int status = nvrtc.create_program(&program.handle, source.c_str(), name.c_str(),
                                    static_cast<int>(texts.size()), texts.data(), names.data());
  if (status == 0) {
    const std::string arch =
        fmt::format("-arch=compute_{}{}", target.compute, target.accelerated ? "a" : "");
    std::vector<const char*> options = {arch.c_str(), "--std=c++20", "--minimal", "-fmad=false",
                                        "--no-cache"};
    if (calls_others) options.push_back("--relocatable-device-code=true");
    status =
        nvrtc.compile_program(program.handle, static_cast<int>(options.size()), options.data());
  }
  std::size_t size = 0;
  if (status == 0) status = nvrtc.get_ptx_size(program.handle, &size);
  if (status != 0)
    return Error{Code::compile,
                 fmt::format("{} could not compile {}: {}", nvrtc.version, what,
                             nvrtc.get_error_string(status)),
                 {{"log", program.handle ? program_log(program) : ""}}};
  // NVRTC has accepted, with a warning, types it then compiled as others.
  if (const std::string log = program_log(program); log.find("warning") != std::string::npos)
    return Error{
        Code::compile,
        fmt::format("{} compiled {} with warnings, which are not trusted", nvrtc.version, what),
        {{"log", log}}};
  std::string ptx(size, '\0');
  nvrtc.get_ptx(program.handle, ptx.data());
  ptx.resize(size - 1);
  return ptx;
}

}  // namespace lathe
