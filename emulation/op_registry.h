// Owns the way from the name of an op to its function in the host build of the ops.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "lathe/codegen/kernel_table.h"

namespace lathe::emulation {

union OpValue {
  void* pointer;
  int integer;
  float real;
};

// One op of ptx_templates/ops: its parameters' kinds ('p'ointer, 'i'nteger, 'r'eal), in order, and
// a function that calls it with as many values.
struct HostOp {
  const char* header;  // "ops/gemv.h"
  const char* name;
  const char* signature;  // "pppppiiii"
  void (*call)(const OpValue* values);
};

// Every op in ptx_templates/ops, by header.
std::span<const HostOp> host_ops();
const HostOp* find_host_op(std::string_view name);

// The values of a call on these kernel arguments, or why the call does not fit the op's signature.
Result<std::vector<OpValue>> op_values(const OpCall& call, std::span<void* const> arguments);

}  // namespace lathe::emulation
