// Owns the tool chain of this machine: codegen's compilers and the chosen assembler.
#include "runtime/environment.h"
#include "runtime/platform.h"

namespace lathe {
namespace {

class SystemToolchain final : public Toolchain {
 public:
  SystemToolchain(CompilerPaths paths, std::unique_ptr<Assembler> assembler)
      : compilers_(std::move(paths)), assembler_(std::move(assembler)) {}

  Result<void> covers(const KernelKey& key, Route route) const override {
    LATHE_TRY(route_covers(key, route));
    return compilers_.available(route);
  }
  Result<std::string> compiler(Route route) const override { return compilers_.version(route); }
  std::string fingerprint() const override { return codegen_fingerprint(); }
  Result<Ptx> emit(const KernelKey& key, const Target& target, Route route) const override {
    return lathe::emit(key, target, route, compilers_);
  }
  Result<Ptx> emit(const Program& program, const Target& target) const override {
    return emit_program(program, target, compilers_);
  }
  Result<Ptx> emit(const CustomKernel& kernel, const Target& target) const override {
    return emit_custom_kernel(kernel, target, compilers_);
  }
  const Assembler& assembler() const override { return *assembler_; }

 private:
  Compilers compilers_;
  std::unique_ptr<Assembler> assembler_;
};

}  // namespace

Result<std::unique_ptr<Toolchain>> open_toolchain(const Context& context,
                                                  const CompilerPaths& compilers,
                                                  std::vector<std::string>& notes) {
  const Environment environment = read_environment();
  CompilerPaths paths = compilers;
  if (paths.nvrtc.empty()) paths.nvrtc = environment.nvrtc;
  if (paths.llvm.empty()) paths.llvm = environment.llvm;
  LATHE_ASSIGN(std::unique_ptr<Assembler> assembler,
               choose_assembler(context, environment.nvjitlink, notes));
  return std::unique_ptr<Toolchain>(
      std::make_unique<SystemToolchain>(std::move(paths), std::move(assembler)));
}

}  // namespace lathe
