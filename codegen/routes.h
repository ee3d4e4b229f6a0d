// Owns what emit.cpp asks of the three routes.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "codegen/shared_library.h"
#include "lathe/codegen/emit.h"

namespace lathe {

// NVRTC's functions, declared here because its header need not be installed.
struct Nvrtc {
  std::shared_ptr<SharedLibrary> library;
  std::string version;
  int (*create_program)(void**, const char* source, const char* name, int headers,
                        const char* const* header_texts, const char* const* header_names);
  int (*destroy_program)(void**);
  int (*compile_program)(void*, int options, const char* const* option_texts);
  int (*get_ptx_size)(void*, std::size_t*);
  int (*get_ptx)(void*, char*);
  int (*get_log_size)(void*, std::size_t*);
  int (*get_log)(void*, char*);
  const char* (*get_error_string)(int);
};

struct LlvmPlugin;

// Each compiler is loaded at most once, by the first thread that needs it.
struct Compilers::State {
  CompilerPaths paths;
  std::mutex mutex;
  std::unique_ptr<Result<Nvrtc>> nvrtc;
  std::unique_ptr<Result<std::shared_ptr<LlvmPlugin>>> llvm;
};

Result<const Nvrtc*> load_nvrtc(Compilers::State& state);
Result<std::string> nvrtc_ptx(const KernelKey& key, const Target& target, const Nvrtc& nvrtc);

Result<const LlvmPlugin*> load_llvm(Compilers::State& state);
std::string llvm_version(const LlvmPlugin& plugin);
Result<std::string> llvm_ptx(const KernelKey& key, const Target& target, const LlvmPlugin& plugin);

Result<std::string> template_ptx(const KernelKey& key, const Target& target);

}  // namespace lathe
