// Owns the embedded bitcode of the device functions and the loading of one function from it.
#include <llvm/Bitcode/BitcodeReader.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/Support/Error.h>
#include <llvm/Support/MemoryBufferRef.h>

#include <set>
#include <vector>

#include "codegen/llvm/backend.h"

// LATHE_BITCODE is the path of device_bitcode.cpp compiled by clang. 4-byte alignment is the
// bitcode reader's.
asm(".section .rodata\n"
    ".balign 4\n"
    ".hidden lathe_bitcode\n"
    ".hidden lathe_bitcode_end\n"
    ".global lathe_bitcode\n"
    ".global lathe_bitcode_end\n"
    "lathe_bitcode:\n"
    ".incbin \"" LATHE_BITCODE
    "\"\n"
    "lathe_bitcode_end:\n"
    ".previous\n");
extern "C" const char lathe_bitcode[], lathe_bitcode_end[];

namespace lathe::backend {
namespace {

void check(llvm::Error error) {
  if (error) throw Refusal("the embedded bitcode: " + llvm::toString(std::move(error)));
}

// clang marks all assembly convergent (-fconvergent-functions), which forbids to unroll loops
// around it. Assembly in which other lanes take part is volatile (a rule of isa/device.h).
void free_pure_assembly(llvm::CallInst& call) {
  const auto* assembly = llvm::dyn_cast<llvm::InlineAsm>(call.getCalledOperand());
  if (assembly && !assembly->hasSideEffects()) call.setNotConvergent();
}

// Reads the bodies of `function` and of all that it calls; returns these functions.
std::set<llvm::Function*> materialize(llvm::Function& function) {
  std::set<llvm::Function*> reached = {&function};
  std::vector<llvm::Function*> waiting = {&function};
  while (!waiting.empty()) {
    llvm::Function& next = *waiting.back();
    waiting.pop_back();
    check(next.materialize());
    for (llvm::Instruction& instruction : llvm::instructions(next)) {
      auto* call = llvm::dyn_cast<llvm::CallInst>(&instruction);
      if (!call) continue;
      free_pure_assembly(*call);
      llvm::Function* callee = call->getCalledFunction();
      if (callee && reached.insert(callee).second && !callee->isIntrinsic())
        waiting.push_back(callee);
    }
  }
  return reached;
}

// Drops the functions whose bodies were never read. A use left by a dead constant would keep one.
void drop_others(llvm::Module& module, const std::set<llvm::Function*>& reached) {
  for (llvm::Function& function : llvm::make_early_inc_range(module)) {
    if (reached.contains(&function)) continue;
    function.removeDeadConstantUsers();
    if (function.use_empty()) function.eraseFromParent();
  }
}

// The bitcode was made for the oldest target: its processor must not outlive the choice of another.
void make_inlined_part(llvm::Function& function) {
  function.removeFnAttr("target-cpu");
  function.removeFnAttr("target-features");
  if (function.isDeclaration()) return;
  function.setLinkage(llvm::GlobalValue::InternalLinkage);
  function.removeFnAttr(llvm::Attribute::NoInline);
  function.addFnAttr(llvm::Attribute::AlwaysInline);
}

}  // namespace

llvm::Function& load_device_function(Compilation& compilation) {
  const llvm::StringRef bytes(lathe_bitcode,
                              static_cast<std::size_t>(lathe_bitcode_end - lathe_bitcode));
  llvm::Expected<std::unique_ptr<llvm::Module>> module = llvm::getLazyBitcodeModule(
      llvm::MemoryBufferRef(bytes, "device_bitcode"), compilation.context);
  check(module.takeError());
  compilation.module = std::move(*module);
  const char* name = compilation.request.function;
  llvm::Function* function = compilation.module->getFunction(name);
  if (!function || function->isDeclaration())
    throw Refusal(std::string("the device code has no function '") + name + "'");
  const std::set<llvm::Function*> reached = materialize(*function);
  drop_others(*compilation.module, reached);
  for (llvm::Function& part : *compilation.module) make_inlined_part(part);
  return *function;
}

}  // namespace lathe::backend
