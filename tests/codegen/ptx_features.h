// Owns which PTX version and target first have an instruction, of those that kernels here use or
// might, and the names of special registers.
#pragma once

#include <span>
#include <string_view>

namespace lathe::testing {

struct PtxFeature {
  std::string_view part;     // of the instruction's name
  int version;               // 10 * major + minor
  int compute;               // 90 is sm_90
  bool accelerated = false;  // only targets with an "a"
};
std::span<const PtxFeature> ptx_features();

// Whether it is one of PTX's own, such as %tid.x.
bool is_special_register(std::string_view name);

}  // namespace lathe::testing
