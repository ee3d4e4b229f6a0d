// Owns the run of a kernel on a GPU between guard pages.
#include "tests/codegen/kernel_runs.h"
#include "tests/support/gpu.h"

namespace lathe::testing {

Result<std::vector<Bytes>> gpu_run(Gpu& gpu, const KernelCase& kernel_case,
                                   const std::string& image, const std::vector<Bytes>& before,
                                   Placement placement) {
  const KernelRow& kernel = row(kernel_case.key.type);
  const std::vector<Param> params = kernel.params(kernel_case.key);
  const std::size_t output = params.size() - 1;
  std::vector<GpuBuffer> buffers;
  std::vector<std::uint64_t> pointers;
  for (std::size_t i = 0; i < params.size(); ++i) {
    const bool shared = kernel_case.alias >= 0 && i == output;
    const Bytes& contents = before[shared ? static_cast<std::size_t>(kernel_case.alias) : i];
    LATHE_ASSIGN(
        GpuBuffer buffer,
        GpuBuffer::make(gpu, contents, static_cast<std::size_t>(params[i].alignment), placement));
    buffers.push_back(std::move(buffer));
    pointers.push_back(buffers.back().address());
  }
  if (kernel_case.alias >= 0)
    pointers[static_cast<std::size_t>(kernel_case.alias)] = pointers[output];
  LATHE_TRY(gpu.run(image, kernel_case.key.symbol(), kernel.geometry(kernel_case.key), pointers));
  std::vector<Bytes> after;
  for (std::size_t i = 0; i < params.size(); ++i) {
    Result<std::vector<std::byte>> contents = buffers[i].contents();
    if (!contents) return std::move(contents).error().with("parameter", params[i].name);
    after.push_back(std::move(*contents));
  }
  LATHE_TRY(inputs_unchanged(kernel_case, before, after));
  return after;
}

}  // namespace lathe::testing
