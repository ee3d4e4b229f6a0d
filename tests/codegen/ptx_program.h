// Owns PTX text as instructions that can be run: registers, labels and constants are resolved.
//
// The part of PTX is known that hand-written kernels use: integers, f32, conversions of f16, memory
// of the spaces global, shared and param, barriers and shuffles. No calls, no static variables.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/codegen/result.h"

namespace lathe::testing {

struct PtxType {
  char kind = 'b';  // of ".b32": b, u, s or f; p for .pred
  int bits = 0;

  friend bool operator==(const PtxType&, const PtxType&) = default;
};

struct PtxOperand {
  enum class Kind { reg, constant, special, vector, memory, label, nothing } kind = Kind::nothing;
  int index = 0;                       // of a register, special register or instruction
  std::uint64_t value = 0;             // a constant; of memory the offset
  bool inverted = false;               // "!%p"
  std::vector<PtxOperand> parts = {};  // of a vector; of memory the base, unless it is a constant
};

enum PtxSpecial : int { kTidX, kCtaidX, kCtaidY };

// A word that instructions are made of, by its place in the list of those that are known.
class PtxWord {
 public:
  static constexpr std::array kKnown = std::to_array<std::string_view>(
      {"abs",   "add",  "and",  "bar",  "bra",  "brev",   "clz",  "cvt",  "cvta",   "div",
       "fma",   "ld",   "mad",  "max",  "min",  "mov",    "mul",  "neg",  "not",    "or",
       "prmt",  "rem",  "ret",  "selp", "setp", "shf",    "shfl", "shl",  "shr",    "sqrt",
       "st",    "sub",  "vote", "xor",  "eq",   "ne",     "lt",   "le",   "gt",     "ge",
       "neu",   "nan",  "rn",   "rni",  "rzi",  "lo",     "hi",   "wide", "shared", "global",
       "param", "bfly", "idx",  "r",    "wrap", "ballot", "ftz"});

  consteval PtxWord(const char* word) : index(find(word)) {}
  // -1 for one that is not known.
  static constexpr int find(std::string_view word) {
    for (std::size_t i = 0; i < kKnown.size(); ++i)
      if (kKnown[i] == word) return static_cast<int>(i);
    return -1;
  }

  const int index;
};

struct PtxInstruction {
  int name = -1;               // "ld", as the index of a PtxWord
  std::uint64_t words = 0;     // "global", "nc", "v4": a bit for each that is known
  std::vector<PtxType> types;  // in their order
  std::vector<PtxOperand> operands;
  int guard = -1;  // a predicate's register
  bool guard_inverted = false;
  int line = 0;
  std::string opcode;  // the text, for errors

  bool is(PtxWord word) const { return name == word.index; }
  bool has(PtxWord word) const { return (words >> word.index & 1) != 0; }
};

struct PtxProgram {
  std::vector<PtxInstruction> instructions;
  int registers = 0;
  int parameters = 0;  // 8 bytes each
};

// Refuses, with the line, what it does not know.
Result<PtxProgram> ptx_program(std::string_view text);

}  // namespace lathe::testing
