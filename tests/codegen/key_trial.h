// Owns what any key is held to: it is refused with a reason, or every route makes the same text
// twice, which is sound, assembles and, run between guard pages, gives the oracle's result within
// the row's bound and, where its instructions are exact, the emulator's bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lathe/codegen/emit.h"

namespace lathe {
class Assembler;
}

namespace lathe::testing {

class Gpu;

struct TrialTools {
  const Compilers* compilers;
  std::vector<Route> routes;
  Target target;
  const Assembler* assembler = nullptr;  // none: nothing is assembled
  Gpu* gpu = nullptr;                    // none: only the emulator runs kernels
  bool emulates = true;
  // Kernels that move or compute more are assembled, not run.
  std::int64_t most_bytes = 8 << 20;
  std::int64_t most_operations = 50'000'000;
};

// What trials came to, by kernels.
struct TrialTally {
  struct ByRoute {
    std::int64_t emitted, same_text, assembled, with_stack, launched, exact, same_bits;
  };
  std::int64_t refused, unserved, kernels, too_large, emulated;
  ByRoute routes[3];
};

// Everything that is wrong with the key, one line each; empty where nothing is. Kernels with local
// memory, which is no fault, are lines that begin with "note:".
std::vector<std::string> try_key(const KernelKey& key, std::uint64_t seed, const TrialTools& tools,
                                 TrialTally& tally);

// The bytes of local memory of a thread of the cubin's kernel; -1 where the cubin does not say.
int cubin_stack_bytes(const std::vector<std::byte>& cubin);

}  // namespace lathe::testing
