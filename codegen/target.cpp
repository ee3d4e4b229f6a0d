// Owns the table of targets and the lowest PTX version that knows each and every instruction of
// ptx_templates: 7.4 at least, for loads that pass the L1 cache by.
#include "lathe/codegen/target.h"

#include <fmt/format.h>

#include <array>

namespace lathe {
namespace {

constexpr std::array kTargets = {
    Target{80, false, 74},  Target{86, false, 74},  Target{87, false, 74},  Target{89, false, 78},
    Target{90, false, 78},  Target{90, true, 80},   Target{100, false, 86}, Target{100, true, 86},
    Target{103, false, 88}, Target{120, false, 87}, Target{120, true, 87},  Target{121, false, 88},
};

}  // namespace

std::string Target::name() const {
  return fmt::format("sm_{}{}", compute, accelerated ? "a" : "");
}

std::string Target::ptx_version() const {
  return fmt::format("{}.{}", ptx / 10, ptx % 10);
}

Result<Target> parse_target(std::string_view name) {
  std::string known;
  for (const Target& target : kTargets) {
    if (target.name() == name) return target;
    known += ' ';  // one string at a time: GCC 12 warns of "x" + std::string when it inlines it
    known += target.name();
  }
  return Error{
      Code::unsupported, fmt::format("target '{}' is not known; known:{}", name, known), {}};
}

Result<Target> target_for_compute_capability(int major, int minor) {
  const int compute = major * 10 + minor;
  const Target* best = nullptr;
  for (const Target& target : kTargets) {
    // Plain code of an earlier minor version of the same chip family runs on a later one; code for
    // an 'a' target runs only on its own chip.
    const bool same = target.compute == compute;
    const bool earlier =
        !target.accelerated && target.compute < compute && target.compute / 10 == major;
    if ((same || earlier) && (!best || target >= *best)) best = &target;
  }
  if (best) return *best;
  if (compute < 80)
    return Error{
        Code::unsupported,
        fmt::format("compute capability {}.{} is too old: Lathe needs 8.0 or later", major, minor),
        {}};
  // A chip newer than the table: the driver compiles the newest plain PTX it knows for it.
  return Target{120, false, 87};
}

}  // namespace lathe
