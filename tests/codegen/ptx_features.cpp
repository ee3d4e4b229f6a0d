// Owns which PTX version and target first have an instruction, as the PTX ISA manual states them.
#include "tests/codegen/ptx_features.h"

#include <algorithm>

namespace lathe::testing {

std::span<const PtxFeature> ptx_features() {
  static constexpr PtxFeature kFeatures[] = {
      {"cp.async.bulk", 80, 90},
      {"fence.proxy.async", 80, 90},
      {"fence.mbarrier_init", 80, 90},
      {"mbarrier.try_wait", 78, 90},
      {"mbarrier.arrive.expect_tx", 80, 90},
      {"mbarrier.expect_tx", 80, 90},
      {"mbarrier.", 70, 80},
      {"elect.sync", 80, 90},
      {"griddepcontrol", 78, 90},
      {"barrier.cluster", 78, 90},
      {"mapa", 78, 90},
      {"multimem", 81, 90},
      {"st.async", 81, 90},
      {"wgmma", 80, 90, true},
      {"setmaxnreg", 80, 90, true},
      {"tcgen05", 86, 100, true},
      {".f32x2", 86, 100},
      {"cp.async.", 70, 80},
      {"redux.sync", 70, 80},
      {"createpolicy", 74, 80},
      {"L2::cache_hint", 74, 80},
      {"L1::no_allocate", 74, 70},
      {".bf16.bf16", 70, 80},
      {".f64.f64.f64.f64", 70, 80},
      {".f32.e4m3.e4m3.f32", 84, 89},
      {".e4m3x2.f32", 81, 89},
      {".m16n8k16", 70, 80},
      {".m16n8k32", 70, 80},
      {".f16x2.f32", 70, 80},
      {".bf16x2.f32", 70, 80},
      {"ldmatrix", 65, 75},
      {"stmatrix", 78, 90},
  };
  return kFeatures;
}

bool is_special_register(std::string_view name) {
  static constexpr std::string_view kNames[] = {
      "%tid",          "%ntid",       "%ctaid",   "%nctaid",
      "%laneid",       "%warpid",     "%nwarpid", "%smid",
      "%nsmid",        "%lanemask",   "%clock",   "%globaltimer",
      "%dynamic_smem", "%total_smem", "%cluster", "%is_explicit_cluster",
      "%gridid"};
  return std::ranges::any_of(kNames, [&](std::string_view n) { return name.starts_with(n); });
}

}  // namespace lathe::testing
