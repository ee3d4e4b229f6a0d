// Owns what the files of liblathe_llvm.so share: one compilation, and its steps in order.
//
// The steps report failure by throwing Refusal, because LLVM's own fatal errors can only be left by
// an exception. lathe_llvm.cpp catches every exception; none leaves the library.
#pragma once

#include <llvm/ADT/SmallString.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "codegen/llvm/lathe_llvm.h"

namespace lathe::backend {

struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Everything LLVM makes for one request. Members are destroyed in reverse order, what refers
// to another before it.
struct Compilation {
  explicit Compilation(const LatheLlvmRequest& request) : request(request) {}

  const LatheLlvmRequest& request;
  std::string errors;  // what LLVM reported without stopping
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module;
  std::unique_ptr<llvm::TargetMachine> machine;
  llvm::SmallString<0> text;
  llvm::raw_svector_ostream stream{text};
  llvm::legacy::PassManager printer;  // writes to the stream until it is destroyed
};

// Loads the requested device function, with all it calls, from the embedded bitcode.
llvm::Function& load_device_function(Compilation& compilation);

// Makes the kernel: pointer parameters, launch bounds and one call of `function`.
void make_kernel(Compilation& compilation, llvm::Function& function);

// Optimizes the module for the requested target and prints it as PTX.
std::string print_ptx(Compilation& compilation);

}  // namespace lathe::backend
