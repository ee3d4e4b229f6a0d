// Owns the ends of loops in PTX for targets whose assembler drops iterations of loops that end in
// an unconditional backward branch.
#pragma once

#include <string>

#include "lathe/codegen/target.h"

namespace lathe {

// The same code with a condition that always holds on every such branch. The assembler does not
// know that it holds: a block's threads are counted in a register that only the launch sets. Takes
// the PTX that compilers and templates write; other text comes back as it was.
std::string with_conditional_back_edges(const std::string& ptx);

// What goes to the target's assembler: that for compute capability 12, else `ptx`.
std::string for_assembler(std::string ptx, const Target& target);

}  // namespace lathe
