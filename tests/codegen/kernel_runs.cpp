// Owns the run of a kernel between guard pages on the host.
#include "tests/codegen/kernel_runs.h"

#include <algorithm>

#include "emulation/emulator.h"

namespace lathe::testing {

Result<void> inputs_unchanged(const KernelCase& kernel_case, const std::vector<Bytes>& before,
                              const std::vector<Bytes>& after) {
  const std::vector<Param> params = row(kernel_case.key.type).params(kernel_case.key);
  for (std::size_t i = 0; i < params.size(); ++i)
    if (params[i].access == Access::read && after[i] != before[i])
      return Error{Code::internal, std::string("the input ") + params[i].name + " changed", {}};
  return {};
}

bool template_sums_in_order(const KernelKey& key) {
  return key.type != KernelType::gemv && key.type != KernelType::rms_norm;
}

Result<std::vector<Bytes>> host_run(const KernelCase& kernel_case, const std::vector<Bytes>& before,
                                    Placement placement, const HostLaunch& launch) {
  const std::vector<Param> params = row(kernel_case.key.type).params(kernel_case.key);
  std::vector<GuardedBuffer> buffers;
  std::vector<void*> pointers;
  buffers.reserve(params.size());
  for (std::size_t i = 0; i < params.size(); ++i) {
    buffers.emplace_back(before[i], static_cast<std::size_t>(params[i].alignment), placement);
    pointers.push_back(buffers.back().data());
  }
  if (kernel_case.alias >= 0) {
    const auto input = static_cast<std::size_t>(kernel_case.alias);
    std::ranges::copy(before[input], buffers.back().data());
    pointers[input] = buffers.back().data();
  }
  LATHE_TRY(launch(pointers));
  std::vector<Bytes> after;
  for (std::size_t i = 0; i < params.size(); ++i) {
    after.emplace_back(buffers[i].contents().begin(), buffers[i].contents().end());
    if (!buffers[i].marks_intact())
      return Error{Code::internal, std::string("memory beside ") + params[i].name + " changed", {}};
  }
  LATHE_TRY(inputs_unchanged(kernel_case, before, after));
  return after;
}

Result<std::vector<Bytes>> emulated_run(const KernelCase& kernel_case,
                                        const std::vector<Bytes>& before, Placement placement,
                                        std::uint64_t seed) {
  return host_run(kernel_case, before, placement, [&](std::span<void* const> pointers) {
    return emulation::emulate(kernel_case.key, pointers, seed);
  });
}

}  // namespace lathe::testing
