// Owns the read kernel, as PTX text, and its timing.
#include "runtime/read_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

namespace lathe {
namespace {

// 512 threads with 8 loads of 16 bytes each: four such blocks fill a multiprocessor and keep
// 256 KiB of reads in flight, several times what the latency of the memory asks for.
constexpr int kThreads = 512;
constexpr int kLoads = 8;
static_assert(ReadKernel::kBlockBytes == kThreads * 16 * kLoads);
constexpr const char* kEntry = "lathe_read_rate";
constexpr std::int64_t kMaxBytes = std::int64_t{2} << 30;
// Launches between two events, so that the gap at either end does not count; and how often.
constexpr int kLaunches = 4;
constexpr int kRepeats = 9;

// Each thread folds what it read into one word and stores it if it has a value that it never has;
// without the store the assembler would drop the loads.
std::string read_kernel(Target target) {
  target.ptx = std::max(target.ptx, 74);  // L1::no_allocate
  std::string loads;
  for (int i = 0; i < kLoads; ++i) {
    loads +=
        fmt::format("  ld.global.nc.L1::no_allocate.v4.u32 {{%v{}, %v{}, %v{}, %v{}}}, [%at+{}];\n",
                    4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3, i * kThreads * 16);
  }
  std::string fold = "  mov.u32 %sum, %v0;\n";
  for (int i = 1; i < 4 * kLoads; ++i) {
    fold += fmt::format("  xor.b32 %sum, %sum, %v{};\n", i);
  }
  return fmt::format(R"(.version {version}
.target {target}
.address_size 64
.visible .entry {entry}(.param .u64 data, .param .u64 out)
{{
  .reg .pred %never;
  .reg .b32 %v<{words}>, %sum, %index;
  .reg .b64 %at, %offset, %out;
  ld.param.u64 %at, [data];
  ld.param.u64 %out, [out];
  mov.u32 %index, %ctaid.x;
  mul.wide.u32 %offset, %index, {block};
  add.u64 %at, %at, %offset;
  mov.u32 %index, %tid.x;
  mul.wide.u32 %offset, %index, 16;
  add.u64 %at, %at, %offset;
{loads}{fold}  setp.eq.u32 %never, %sum, 0x5bd1e995;
  @%never st.global.u32 [%out], %sum;
  ret;
}}
)",
                     fmt::arg("version", target.ptx_version()), fmt::arg("target", target.name()),
                     fmt::arg("entry", kEntry), fmt::arg("words", 4 * kLoads),
                     fmt::arg("block", ReadKernel::kBlockBytes), fmt::arg("loads", loads),
                     fmt::arg("fold", fold));
}

}  // namespace

Result<ReadKernel> ReadKernel::load(const DeviceImpl& device) {
  LATHE_ASSIGN(ServiceKernel reader,
               load_service_kernel(device, read_kernel(device.target()), kEntry));
  return ReadKernel(std::move(reader));
}

Result<void> ReadKernel::launch(const Driver& driver, CUdeviceptr from, std::int64_t bytes,
                                CUstream stream) {
  reader_.kernel.info.geometry = {.grid_x = unsigned(bytes / kBlockBytes), .threads = kThreads};
  CUdeviceptr out = from + CUdeviceptr(bytes);
  void* parameters[] = {&from, &out};
  return check(driver, launch_kernel(driver, reader_.kernel, parameters, stream), "cuLaunchKernel");
}

Result<double> measure_read_rate(const DeviceImpl& device, CUstream stream) {
  const Context& context = device.context();
  const Driver& driver = device.driver();
  LATHE_ASSIGN(ReadKernel reader, ReadKernel::load(device));

  std::size_t free = 0, total = 0;
  LATHE_DRIVER_CALL(driver, cuMemGetInfo, &free, &total);
  const std::int64_t blocks = std::min(kMaxBytes, std::int64_t(free / 2)) / ReadKernel::kBlockBytes;
  const std::int64_t bytes = blocks * ReadKernel::kBlockBytes;
  if (blocks == 0) {
    return Error{
        Code::out_of_memory, "There is no device memory to measure the read rate with.", {}}
        .with("needed", fmt::format("{}", 2 * ReadKernel::kBlockBytes))
        .with("free", fmt::format("{}", free));
  }
  LATHE_ASSIGN(const DeviceBuffer data, allocate_device(context, bytes + 16, "read-rate buffer"));
  LATHE_ASSIGN(const Event begin, create_event(context, CU_EVENT_DEFAULT));
  LATHE_ASSIGN(const Event end, create_event(context, CU_EVENT_DEFAULT));
  const StreamRest rest(context, stream);
  LATHE_DRIVER_CALL(driver, cuMemsetD8Async, data.get(), 0, std::size_t(bytes + 16), stream);

  std::array<float, kRepeats> milliseconds = {};
  for (float& elapsed : milliseconds) {
    LATHE_DRIVER_CALL(driver, cuEventRecord, begin.get(), stream);
    for (int i = 0; i < kLaunches; ++i) {
      LATHE_TRY(reader.launch(driver, data.get(), bytes, stream));
    }
    LATHE_DRIVER_CALL(driver, cuEventRecord, end.get(), stream);
    LATHE_DRIVER_CALL(driver, cuEventSynchronize, end.get());
    LATHE_DRIVER_CALL(driver, cuEventElapsedTime, &elapsed, begin.get(), end.get());
  }
  // The median leaves out the first, which finds cold clocks.
  std::nth_element(milliseconds.begin(), milliseconds.begin() + kRepeats / 2, milliseconds.end());
  const double seconds = double(milliseconds[kRepeats / 2]) / 1000;
  return seconds > 0 ? double(bytes) * kLaunches / seconds : 0.0;
}

}  // namespace lathe
