// Owns the machine that code is made for: compute capability and PTX version.
#pragma once

#include <compare>
#include <string>
#include <string_view>

#include "lathe/codegen/result.h"

namespace lathe {

// Compute capability as a number (9.0 -> 90), compared as a number.
struct Target {
  int compute = 90;
  bool accelerated = true;  // the 'a' target: sm_90a. Needed for wgmma; runs on that chip only
  int ptx = 80;             // PTX ISA version times ten: what `.version` says

  friend auto operator<=>(const Target&, const Target&) = default;
  std::string name() const;         // "sm_90a"
  std::string ptx_version() const;  // "8.0"
};

// Whether four warps can multiply together (wgmma), as kernels with KernelKey::grouped do.
constexpr bool multiplies_in_groups(const Target& target) {
  return target.compute == 90 && target.accelerated;
}

// "sm_90a" and the lowest PTX version that knows it and Lathe's instructions. Known: sm_80, 86, 87,
// 89, 90, 90a, 100, 100a, 103, 120, 120a, 121.
Result<Target> parse_target(std::string_view name);
// The target for a device of this compute capability ("a" variant where the chip has one).
Result<Target> target_for_compute_capability(int major, int minor);

}  // namespace lathe
