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
// have, pointer parameters only, no local memory, no calls, no generic loads or stores; and the
// faults of ptx_lint.h.
std::string broken_rules(const Ptx& ptx, const KernelKey& key);

// The operands of `.param` declarations of the entry point: ".u64 .ptr ...", one a parameter.
std::vector<std::string> entry_parameters(std::string_view ptx);

}  // namespace lathe::testing
