// Takes kernels drawn at random through every route and the assembler: LATHE_DRAWN_KEYS keys, or a
// few where it is not set. How well they do with registers and local memory is asked of the kernels
// that plans have, in ptxas_test.cpp.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/codegen/drawn_keys.h"
#include "tests/codegen/ptx_text.h"
#include "tests/codegen/ptxas.h"
#include "tests/support/compilers.h"

namespace lathe {
namespace {

int keys_wanted() {
  const char* wanted = std::getenv("LATHE_DRAWN_KEYS");
  return wanted ? std::atoi(wanted) : 24;
}

// Empty, or what is wrong with the kernel by this route.
std::string faults(const KernelKey& key, const Target& target, Route route) {
  const Result<Ptx> ptx = emit(key, target, route, testing::compilers());
  if (!ptx) return ptx.error().text();
  // NVRTC 13.0 orders some registers by addresses of its own, so its text is not always the same.
  if (route != Route::nvrtc) {
    const Result<Ptx> again = emit(key, target, route, testing::compilers());
    if (!again || again->text != ptx->text) return "its text is another one the second time";
  }
  if (!testing::ptxas().found()) return {};
  const testing::PtxasOutput out = testing::ptxas().assemble(*ptx, "drawn");
  return out.status == 0 ? "" : "ptxas failed: " + out.text;
}

TEST(DrawnKernels, EmitSoundPtxThatAssembles) {
  const std::uint64_t seed = verification::fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  verification::Random random(seed);
  int kernels = 0, refused = 0;
  for (int i = 0; i < keys_wanted(); ++i) {
    const KernelKey key = testing::drawn_key(random);
    const std::vector<Target> targets = testing::tested_targets(key);
    if (!check_key(key) || targets.empty()) {
      ++refused;
      continue;
    }
    ++kernels;
    const Target& target = targets[static_cast<std::size_t>(random.below(int(targets.size())))];
    for (Route route : {Route::nvrtc, Route::llvm, Route::text})
      if (route_covers(key, route) && testing::compilers().available(route)) {
        EXPECT_EQ(faults(key, target, route), "")
            << key.text() << " " << route_name(route) << " " << target.name();
      }
  }
  RecordProperty("kernels", kernels);
  RecordProperty("refused", refused);
}

}  // namespace
}  // namespace lathe
