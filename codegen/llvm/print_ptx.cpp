// Owns the way from a module to PTX text: the processor, the pass pipelines, the text's last touch.
#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/PassManager.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Target/TargetOptions.h>
#include <llvm/TargetParser/Triple.h>
#include <llvm/Transforms/IPO/AlwaysInliner.h>
#include <llvm/Transforms/IPO/GlobalDCE.h>

#include <algorithm>
#include <charconv>

#include "codegen/llvm/backend.h"

namespace lathe::backend {
namespace {

constexpr char kTriple[] = "nvptx64-nvidia-cuda";
constexpr int kOldest = 80;  // what the bitcode is compiled for

std::string processor_name(int compute, bool accelerated) {
  return "sm_" + std::to_string(compute) + (accelerated ? "a" : "");
}

// The processor to compile for: the requested one, or the newest earlier one that this LLVM knows.
// PTX for an earlier processor is PTX for a later one.
std::string known_processor(const llvm::MCSubtargetInfo& known, const LatheLlvmRequest& request) {
  const std::string wanted = processor_name(request.compute, request.accelerated);
  if (request.compute < kOldest || request.compute > 999)
    throw Refusal("the device code is not for " + wanted);
  if (known.isCPUStringValid(wanted)) return wanted;
  for (int compute = request.compute; compute > kOldest; --compute) {
    const std::string name = processor_name(compute, false);
    if (known.isCPUStringValid(name)) return name;
  }
  return processor_name(kOldest, false);
}

// Arithmetic stays as written: no contraction, IEEE division and square root, denormals kept.
std::unique_ptr<llvm::TargetMachine> make_machine(const LatheLlvmRequest& request) {
#if LLVM_VERSION_MAJOR >= 21
  const llvm::Triple triple(kTriple);
#else
  const char* triple = kTriple;
#endif
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target) throw Refusal(error);
  const std::unique_ptr<llvm::MCSubtargetInfo> known(target->createMCSubtargetInfo(triple, "", ""));
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  std::unique_ptr<llvm::TargetMachine> machine(
      target->createTargetMachine(triple, known_processor(*known, request), "", options,
                                  llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::Default));
  if (!machine) throw Refusal("LLVM made no target machine");
  return machine;
}

// Inlines everything into the kernel, then the usual pipeline. Vectorization across iterations has
// nothing to give where a thread is a lane.
void optimize(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = false;
  tuning.LoopInterleaving = false;
  tuning.SLPVectorization = false;
  llvm::PassBuilder builder(&machine, tuning);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::ModulePassManager passes;
  passes.addPass(llvm::AlwaysInlinerPass());
  passes.addPass(llvm::GlobalDCEPass());
  passes.addPass(builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3));
  passes.run(module, modules);
}

// "7.8" -> 78.
int parse_version(llvm::StringRef text) {
  int major = 0, minor = 0;
  const auto [dot, error] = std::from_chars(text.begin(), text.end(), major);
  if (error == std::errc() && dot != text.end()) std::from_chars(dot + 1, text.end(), minor);
  return major * 10 + minor;
}

// LLVM numbers a kernel's parameters; the request has names for them.
std::string name_parameters(std::string line, const LatheLlvmRequest& request) {
  const std::string prefix = std::string(request.entry) + "_param_";
  for (std::size_t at = 0; (at = line.find(prefix, at)) != std::string::npos;) {
    const char* digits = line.data() + at + prefix.size();
    int index = 0;
    const char* end = std::from_chars(digits, line.data() + line.size(), index).ptr;
    if (end == digits || index >= request.parameter_count) break;
    const std::string name = request.parameters[index].name;
    line.replace(at, static_cast<std::size_t>(end - line.data()) - at, name);
    at += name.size();
  }
  return line;
}

// Names parameters, target and version as requested and drops LLVM's comments, which say nothing of
// the kernel. LLVM writes the least version its processor needs; the request may raise it.
std::string finish_text(llvm::StringRef printed, const LatheLlvmRequest& request) {
  std::string out;
  out.reserve(printed.size());
  while (!printed.empty()) {
    const auto [line, rest] = printed.split('\n');
    printed = rest;
    const llvm::StringRef text = line.trim();
    const bool after_blank = out.empty() || llvm::StringRef(out).ends_with("\n\n");
    if (text.starts_with("//") || (text.empty() && after_blank)) continue;
    if (text.starts_with(".version ")) {
      const int version = std::max(parse_version(text.substr(9)), request.ptx);
      out += ".version " + std::to_string(version / 10) + "." + std::to_string(version % 10);
    } else if (text.starts_with(".target ")) {
      out += ".target " + processor_name(request.compute, request.accelerated);
    } else {
      out += name_parameters(line.rtrim().str(), request);
    }
    out += '\n';
  }
  return out;
}

}  // namespace

std::string print_ptx(Compilation& compilation) {
  llvm::Module& module = *compilation.module;
  compilation.machine = make_machine(compilation.request);
  llvm::TargetMachine& machine = *compilation.machine;
#if LLVM_VERSION_MAJOR >= 21
  module.setTargetTriple(machine.getTargetTriple());
#else
  module.setTargetTriple(machine.getTargetTriple().str());
#endif
  module.setDataLayout(machine.createDataLayout());
  optimize(module, machine);
  if (machine.addPassesToEmitFile(compilation.printer, compilation.stream, nullptr,
                                  llvm::CodeGenFileType::AssemblyFile))
    throw Refusal("LLVM " LLVM_VERSION_STRING " cannot print PTX");
  compilation.printer.run(module);
  return finish_text(compilation.text, compilation.request);
}

}  // namespace lathe::backend
