// Owns the kernel's own function: parameters as requested, launch bounds, one call of a device
// function with the shape as constants.
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/Metadata.h>

#include <span>
#include <vector>

#include "codegen/llvm/backend.h"

namespace lathe::backend {
namespace {

void describe_parameters(llvm::Function& kernel, std::span<const LatheLlvmParameter> parameters) {
  llvm::LLVMContext& context = kernel.getContext();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const LatheLlvmParameter& parameter = parameters[i];
    llvm::Argument& argument = *kernel.getArg(static_cast<unsigned>(i));
    argument.addAttr(llvm::Attribute::getWithAlignment(
        context, llvm::Align(static_cast<std::uint64_t>(parameter.alignment))));
    // Both together let loads take the read-only path: ld.global.nc.
    if (parameter.flags & LATHE_LLVM_READONLY) argument.addAttr(llvm::Attribute::ReadOnly);
    if (parameter.flags & LATHE_LLVM_NOALIAS) argument.addAttr(llvm::Attribute::NoAlias);
  }
}

// `.maxntid threads`, and `.minnctapersm resident`: without it ptxas aims at an occupancy of its
// own and spills to reach it. LLVM 21 reads function attributes, older releases a module-wide list.
void bound_launch(llvm::Function& kernel, int threads, int resident) {
#if LLVM_VERSION_MAJOR >= 21
  kernel.addFnAttr("nvvm.maxntid", std::to_string(threads));
  kernel.addFnAttr("nvvm.minctasm", std::to_string(resident));
#else
  llvm::LLVMContext& context = kernel.getContext();
  llvm::Type* i32 = llvm::Type::getInt32Ty(context);
  llvm::NamedMDNode* list = kernel.getParent()->getOrInsertNamedMetadata("nvvm.annotations");
  const auto annotate = [&](const char* name, int value) {
    llvm::Constant* number = llvm::ConstantInt::getSigned(i32, value);
    list->addOperand(llvm::MDNode::get(
        context, {llvm::ConstantAsMetadata::get(&kernel), llvm::MDString::get(context, name),
                  llvm::ConstantAsMetadata::get(number)}));
  };
  annotate("kernel", 1);
  annotate("maxntidx", threads);
  annotate("minctasm", resident);
#endif
}

// The same as allow_dependents() and wait_for_predecessor() of ptx_templates/isa.
void wait_for_kernels_before(llvm::IRBuilder<>& builder) {
  llvm::FunctionType* type = llvm::FunctionType::get(builder.getVoidTy(), false);
  for (const char* text : {"griddepcontrol.launch_dependents;", "griddepcontrol.wait;"})
    builder.CreateCall(type, llvm::InlineAsm::get(type, text, "~{memory}", true));
}

// The value of one argument of the device function, or null where the request does not fit it.
llvm::Value* argument_value(const LatheLlvmArgument& argument, llvm::Type* type,
                            llvm::Function& kernel) {
  switch (argument.kind) {
    case LATHE_LLVM_PARAMETER:
      if (!type->isPointerTy() || argument.integer < 0 ||
          static_cast<unsigned>(argument.integer) >= kernel.arg_size())
        return nullptr;
      return kernel.getArg(static_cast<unsigned>(argument.integer));
    case LATHE_LLVM_NULL:
      return type->isPointerTy() ? llvm::Constant::getNullValue(type) : nullptr;
    case LATHE_LLVM_INTEGER:
      if (!type->isIntegerTy(32)) return nullptr;
      return llvm::ConstantInt::getSigned(type, argument.integer);
    case LATHE_LLVM_REAL:
      return type->isFloatTy()
                 ? llvm::ConstantFP::get(type->getContext(), llvm::APFloat(argument.real))
                 : nullptr;
  }
  return nullptr;
}

}  // namespace

void make_kernel(Compilation& compilation, llvm::Function& function) {
  const LatheLlvmRequest& request = compilation.request;
  const std::span parameters(request.parameters, static_cast<std::size_t>(request.parameter_count));
  const std::span arguments(request.arguments, static_cast<std::size_t>(request.argument_count));
  if (function.arg_size() != arguments.size())
    throw Refusal(function.getName().str() + " takes " + std::to_string(function.arg_size()) +
                  " arguments, not " + std::to_string(arguments.size()));

  llvm::LLVMContext& context = compilation.context;
  const std::vector<llvm::Type*> pointers(parameters.size(), llvm::PointerType::get(context, 0));
  llvm::Type* nothing = llvm::Type::getVoidTy(context);
  // The entry's name must be free, also of the function it calls.
  const std::string name = function.getName().str();
  function.setName(std::string(request.entry) + ".op");
  llvm::Function* kernel = llvm::Function::Create(llvm::FunctionType::get(nothing, pointers, false),
                                                  llvm::GlobalValue::ExternalLinkage, request.entry,
                                                  compilation.module.get());
  kernel->setCallingConv(llvm::CallingConv::PTX_Kernel);
  kernel->setDoesNotThrow();
  describe_parameters(*kernel, parameters);
  bound_launch(*kernel, request.threads, request.resident);

  std::vector<llvm::Value*> values;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    llvm::Type* type = function.getArg(static_cast<unsigned>(i))->getType();
    llvm::Value* value = argument_value(arguments[i], type, *kernel);
    if (!value) throw Refusal("argument " + std::to_string(i) + " does not fit " + name);
    values.push_back(value);
  }
  llvm::IRBuilder<> builder(llvm::BasicBlock::Create(context, "", kernel));
  if (request.waits) wait_for_kernels_before(builder);
  builder.CreateCall(&function, values);
  builder.CreateRetVoid();
}

}  // namespace lathe::backend
