// Owns the entry points of liblathe_llvm.so: LLVM's one-time set-up, the order of the steps, and
// how every kind of failure becomes a reply.
#include "codegen/llvm/lathe_llvm.h"

#include <llvm/Config/llvm-config.h>
#include <llvm/IR/DiagnosticHandler.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/PrettyStackTrace.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>

#include <mutex>

#include "codegen/llvm/backend.h"

extern "C" {
void LLVMInitializeNVPTXTargetInfo();
void LLVMInitializeNVPTXTarget();
void LLVMInitializeNVPTXTargetMC();
void LLVMInitializeNVPTXAsmPrinter();
}

namespace lathe::backend {
namespace {

// LLVM gave up in the middle of a step.
struct Fatal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// LLVM ends the process when this returns; so it does not.
[[noreturn]] void leave_llvm(void*, const char* reason, bool) {
  throw Fatal(reason);
}

void set_up_llvm() {
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
  llvm::install_fatal_error_handler(leave_llvm);
  // Loop strength reduction costs up to half of the printing time and makes the code no better.
  auto& options = llvm::cl::getRegisteredOptions();
  if (const auto found = options.find("disable-lsr"); found != options.end())
    found->second->addOccurrence(0, "disable-lsr", "true");
}

// Collects errors that LLVM reports while it goes on, e.g. an operation without an instruction.
struct CollectErrors : llvm::DiagnosticHandler {
  explicit CollectErrors(std::string& errors) : errors(errors) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (info.getSeverity() != llvm::DS_Error) return true;
    llvm::raw_string_ostream stream(errors);
    llvm::DiagnosticPrinterRawOStream printer(stream);
    info.print(printer);
    stream << '\n';
    return true;
  }
  std::string& errors;
};

void check(const LatheLlvmRequest& request) {
  if (request.struct_size != sizeof(LatheLlvmRequest))
    throw Refusal("the request was made for another version of liblathe_llvm.so");
  if (!request.function || !request.entry || request.parameter_count < 0 ||
      request.argument_count < 0 || request.threads < 1 || request.resident < 1)
    throw Refusal("the request lacks a function, an entry or a number of threads");
  for (int i = 0; i < request.parameter_count; ++i) {
    const char* name = request.parameters[i].name;
    const int alignment = request.parameters[i].alignment;
    if (!name || !*name) throw Refusal("parameter " + std::to_string(i) + " has no name");
    if (alignment < 1 || (alignment & (alignment - 1)))
      throw Refusal("the alignment of parameter " + std::to_string(i) + " is not a power of two");
  }
}

std::string compile(Compilation& compilation) {
  compilation.context.setDiagnosticHandler(std::make_unique<CollectErrors>(compilation.errors));
  make_kernel(compilation, load_device_function(compilation));
  std::string ptx = print_ptx(compilation);
  if (!compilation.errors.empty()) throw Refusal(compilation.errors);
  return ptx;
}

std::string emit(const LatheLlvmRequest& request) {
  static std::once_flag once;
  std::call_once(once, set_up_llvm);
  check(request);
  auto compilation = std::make_unique<Compilation>(request);
  const void* stack = llvm::SavePrettyStackState();
  try {
    return compile(*compilation);
  } catch (const Fatal&) {
    // LLVM's frames are compiled without clean-up code, so their objects were not destroyed: the
    // state is no longer fit for it, and is given up.
    (void)compilation.release();
    llvm::RestorePrettyStackState(stack);
    throw;
  }
}

}  // namespace
}  // namespace lathe::backend

int lathe_llvm_emit(const LatheLlvmRequest* request,
                    void (*reply)(void* user, const char* text, unsigned long bytes), void* user) {
  std::string text;
  int status = 1;
  try {
    text = lathe::backend::emit(*request);
    status = 0;
  } catch (const std::exception& error) {
    text = error.what();
  }
  reply(user, text.data(), text.size());
  return status;
}

const char* lathe_llvm_version(void) {
  return "LLVM " LLVM_VERSION_STRING;
}
