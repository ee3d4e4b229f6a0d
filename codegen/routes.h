// Owns what emit.cpp asks of the three routes.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "codegen/dynamic_library.h"
#include "lathe/codegen/emit.h"

namespace lathe {

// NVRTC's functions, declared here because its header need not be installed.
struct Nvrtc {
  DynamicLibrary library;
  std::string version = {};
  int (*create_program)(void**, const char* source, const char* name, int headers,
                        const char* const* header_texts, const char* const* header_names) = nullptr;
  int (*destroy_program)(void**) = nullptr;
  int (*compile_program)(void*, int options, const char* const* option_texts) = nullptr;
  int (*get_ptx_size)(void*, std::size_t*) = nullptr;
  int (*get_ptx)(void*, char*) = nullptr;
  int (*get_log_size)(void*, std::size_t*) = nullptr;
  int (*get_log)(void*, char*) = nullptr;
  const char* (*get_error_string)(int) = nullptr;
};

struct LlvmPlugin;

// Each compiler is loaded at most once, by the first thread that needs it.
struct Compilers::State {
  CompilerPaths paths;
  std::mutex mutex;
  std::unique_ptr<Result<Nvrtc>> nvrtc;
  std::unique_ptr<Result<std::shared_ptr<const LlvmPlugin>>> llvm;
};

Result<const Nvrtc*> load_nvrtc(Compilers::State& state);
Result<std::string> nvrtc_ptx(const KernelKey& key, const Target& target, const Nvrtc& nvrtc);
// The same for a whole source; `what` is its name in errors. `calls_others`: it may declare
// functions that it does not define.
Result<std::string> nvrtc_compile(const std::string& source, const std::string& what,
                                  const Target& target, const Nvrtc& nvrtc,
                                  bool calls_others = false);

// A source of the caller's. The PTX version stays that of NVRTC: what it uses is not known here.
Result<std::string> nvrtc_compile_custom(const std::string& source, const std::string& what,
                                         const Target& target, const Nvrtc& nvrtc,
                                         bool calls_others = false);

Result<const LlvmPlugin*> load_llvm(Compilers::State& state);
std::string llvm_version(const LlvmPlugin& plugin);
const std::string& llvm_library(const LlvmPlugin& plugin);
Result<std::string> llvm_ptx(const KernelKey& key, const Target& target, const LlvmPlugin& plugin);

Result<std::string> template_ptx(const KernelKey& key, const Target& target);

}  // namespace lathe
