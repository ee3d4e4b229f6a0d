// Owns the ends of loops in PTX for targets whose assembler drops iterations of loops that end in
// an unconditional backward branch.
#pragma once

#include <string>

#include "lathe/codegen/target.h"

namespace lathe {

// Whether the target's assembler is such a one: that of compute capability 12.
bool wants_conditional_back_edges(const Target& target);

// The same code with a condition that always holds on every such branch. The assembler does not
// know that it holds: a block's threads are counted in a register that only the launch sets. Takes
// the PTX that compilers and templates write; other text comes back as it was.
std::string with_conditional_back_edges(const std::string& ptx);

}  // namespace lathe
