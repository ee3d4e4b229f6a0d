// Owns what tests ask of PTX text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lathe/codegen/emit.h"

namespace lathe::testing {

// The targets that every route must serve.
std::vector<Target> tested_targets();
// Those among them that have this key's instructions.
std::vector<Target> tested_targets(const KernelKey& key);

// Every rule that the text breaks, one line each: the version, target and entry point it must
// have, pointer parameters only, no local memory, no calls, no generic loads or stores, no flush of
// subnormals, inexact_faults(); early_faults(); and the faults of ptx_lint.h.
std::string broken_rules(const Ptx& ptx, const KernelKey& key);

// The opcodes whose results PTX does not define to the bit, once each: approximations, and matrix
// products with sums of f32, whose order is the hardware's.
std::vector<std::string> inexact_opcodes(std::string_view ptx);

// Empty, or how the text is not what the key's row says of them.
std::string inexact_faults(std::string_view ptx, const KernelKey& key);

// The same code as it would be for sm_120, whose assembler is particular about loops.
Ptx for_sm_120(Ptx ptx);

// The operands of `.param` declarations of the entry point: ".u64 .ptr ...", one a parameter.
std::vector<std::string> entry_parameters(std::string_view ptx);

}  // namespace lathe::testing
