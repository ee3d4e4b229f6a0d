// Owns the cutting of PTX text into statements and scopes.
#pragma once

#include <string_view>
#include <vector>

namespace lathe::testing {

// One directive, instruction, label or brace. Tokens view the text: names with all that belongs to
// them ("%tid.x", "ld.global.v4.u32", "$L__BB0_1"), numbers, and single characters of punctuation.
struct PtxStatement {
  enum class Kind { directive, instruction, label, open, close };
  Kind kind;
  std::vector<std::string_view> tokens;  // of a function's header all of it; of braces none
  int line;                              // counted from 1

  bool has(std::string_view token) const;
};

// Comments and strings are left out. An open brace follows the header of the function it belongs
// to.
std::vector<PtxStatement> ptx_statements(std::string_view text);

// Whether a token is the name of a register, variable, label or function.
bool is_name(std::string_view token);

}  // namespace lathe::testing
