// Owns the program of a persistent kernel: the fused kernels of a plan as phases of one launch that
// decodes whole tokens.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lathe/codegen/emit.h"
#include "lathe/codegen/kernel_key.h"

namespace lathe {

// What the code of a persistent kernel is made for. The shapes of its matrix-vector phases are data
// (ptx_templates/ops/persistent.h says why).
struct Program {
  KernelKey embed;
  std::vector<KernelKey> attends;  // distinct; a step names its own by index
  std::vector<KernelKey> matvecs;  // distinct
  int steps = 0;                   // of a token: embed, matvec and attend
  int entries = 0;                 // matrices of a token
  int blocks = 0;                  // one for each multiprocessor, all at once
  int warps = 16;
  int stages = 0;      // tiles under way per warp, or pairs of tiles
  int slot_bytes = 0;  // room for the largest tile, or for two
  int together = 1;    // tiles that a warp multiplies at once, 1 or 2, as all matvecs say

  // Names everything that the code depends on.
  std::string text() const;
  Geometry geometry() const;
};

// The steps of a plan that a persistent kernel takes: those up to the last matrix-vector product.
// What follows them is launched after it.
std::span<const KernelKey> persistent_steps(std::span<const KernelKey> steps);

// The key by which a program knows a step: what holds for launches alone is left out.
KernelKey phase_key(KernelKey step);

// The program of these steps' keys, in order: embed, then matvec and attend, as Fusion::full makes
// them. Code::not_eligible, with the reason, when they do not fit one kernel.
Result<Program> make_program(std::span<const KernelKey> steps);

// Ok, or why there can be no such kernel for this target.
Result<void> program_fits(const Program& program, const Target& target);

// By NVRTC. entry is "lathe_persistent"; the parameters are those of PersistentOperands, then as
// 32-bit integers the number of tokens and whether the kernel chooses them.
// NVRTC takes the source twice at the same time, for attention and for the rest.
Result<Ptx> emit_program(const Program& program, const Target& target, const Compilers& compilers);
// That source: whole, and a part of it behind "#define LATHE_ATTENTION_ALONE" or
// "#define LATHE_FRAME_ALONE".
Result<std::string> cuda_source(const Program& program);

}  // namespace lathe
