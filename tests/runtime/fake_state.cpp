// Owns the counting, failing and deferred work of the fake driver.
#include "tests/runtime/fake_state.h"

#include <algorithm>
#include <cstring>

#include "lathe/plan/plan.h"

namespace lathe::testing {

State* g_state = nullptr;
thread_local std::vector<FakeContext*> t_contexts;

void violation(const std::string& text) {
  std::lock_guard lock(g_state->mutex);
  g_state->violations.insert(text);
}

namespace {

// How calls fail on real machines when nothing is wrong with the caller.
struct Failing {
  std::string_view call;
  std::vector<CUresult> statuses;
};

const std::vector<CUresult>& failures_of(std::string_view call) {
  static const std::vector<Failing> table = {
      {"cuDevicePrimaryCtxRetain", {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_DEVICE_UNAVAILABLE}},
      {"cuMemAlloc", {CUDA_ERROR_OUT_OF_MEMORY}},
      {"cuMemAllocHost", {CUDA_ERROR_OUT_OF_MEMORY}},
      {"cuStreamCreate", {CUDA_ERROR_OUT_OF_MEMORY}},
      {"cuEventCreate", {CUDA_ERROR_OUT_OF_MEMORY}},
      {"cuLibraryLoadData",
       {CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_OUT_OF_MEMORY}},
      {"cuLaunchKernel", {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_LAUNCH_FAILED}},
      {"cuLaunchCooperativeKernel",
       {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE}},
      {"cuGraphInstantiateWithFlags", {CUDA_ERROR_OUT_OF_MEMORY}},
      {"cuGraphLaunch", {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_ILLEGAL_ADDRESS}},
      {"cuStreamSynchronize", {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED}},
      {"cuStreamQuery", {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED}},
      {"cuEventSynchronize", {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_DEVICE_UNAVAILABLE}},
      {"cuMemcpyHtoDAsync", {CUDA_ERROR_DEVICE_UNAVAILABLE}},
      {"cuMemcpyDtoHAsync", {CUDA_ERROR_ILLEGAL_ADDRESS}},
      {"cuMemcpyDtoDAsync", {CUDA_ERROR_ILLEGAL_ADDRESS}},
  };
  static const std::vector<CUresult> none;
  const auto found = std::ranges::find(table, call, &Failing::call);
  return found == table.end() ? none : found->statuses;
}

bool loses_context(CUresult status) {
  return status == CUDA_ERROR_ILLEGAL_ADDRESS || status == CUDA_ERROR_LAUNCH_FAILED ||
         status == CUDA_ERROR_DEVICE_UNAVAILABLE;
}

// What the call fails with by chance. Wants the mutex.
CUresult draw_failure(std::string_view call, FakeContext& current) {
  if (!g_state->random) return CUDA_SUCCESS;
  const RandomFailures& random = *g_state->random;
  const auto* victim =
      random.context ? reinterpret_cast<FakeContext*>(random.context) : &g_state->primary;
  const std::vector<CUresult>& statuses = failures_of(call);
  if (&current != victim || statuses.empty()) return CUDA_SUCCESS;
  if (std::uniform_real_distribution<>()(g_state->draws) >= random.rate) return CUDA_SUCCESS;
  const CUresult status = statuses[g_state->draws() % statuses.size()];
  ++g_state->random_failures;
  g_state->failed = call;
  if (loses_context(status) && current.retained > 0) current.lost = status;
  return status;
}

}  // namespace

CUresult enter(const char* name, bool needs_context) {
  std::lock_guard lock(g_state->mutex);
  const auto found = g_state->counts.find(std::string_view(name));
  if (found != g_state->counts.end()) {
    ++found->second;
  } else {
    g_state->counts.emplace(name, 1);
  }
  ++g_state->total;
  if (needs_context && t_contexts.empty()) {
    violation(std::string(name) + " without a current context");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (g_state->fail_in >= 0 && std::string_view(name).starts_with(g_state->fail_begin) &&
      g_state->fail_in-- == 0) {
    g_state->failed = name;
    return g_state->fail_status;
  }
  FakeContext& current = needs_context ? *t_contexts.back() : g_state->primary;
  if (needs_context && current.lost != CUDA_SUCCESS) return current.lost;
  return draw_failure(name, current);
}

FakeStream& stream_of(CUstream stream) {
  return stream ? *reinterpret_cast<FakeStream*>(stream) : g_state->default_stream;
}

void put(CUstream stream, std::function<void()> work) {
  std::lock_guard lock(g_state->mutex);
  FakeStream& to = stream_of(stream);
  if (to.capturing)
    to.recorded.push_back(std::move(work));
  else
    to.queue.push_back(std::move(work));
}

void refuse_capture(CUstream stream, const char* call) {
  if (stream_of(stream).capturing) violation(std::string(call) + " of a stream being captured");
}

void check_range(CUdeviceptr pointer, std::size_t bytes, const char* call) {
  std::lock_guard lock(g_state->mutex);
  auto after = g_state->buffers.upper_bound(pointer);
  if (after != g_state->buffers.begin()) {
    --after;
    if (pointer + bytes <= after->first + after->second) return;
  }
  violation(std::string(call) + " outside a buffer");
}

void drain(FakeStream& stream) {
  std::lock_guard lock(g_state->mutex);
  while (!stream.queue.empty()) {
    const auto work = std::move(stream.queue.front());
    stream.queue.pop_front();
    work();
  }
}

void finish(FakeStream& stream, const char* call) {
  std::lock_guard lock(g_state->mutex);
  if (g_state->pace != FakeDriver::Pace::hung) return drain(stream);
  if (!stream.queue.empty()) violation(std::string(call) + " waits for a hung stream");
}

void run(const FakeLaunch& launch) {
  if (launch.library->advance) {
    auto& control = *reinterpret_cast<ControlBlock*>(launch.arguments[0]);
    reinterpret_cast<std::int32_t*>(launch.arguments[1])[control.position] = control.sampled;
    control.advance();
    control.position = std::min(control.position, std::int32_t(launch.arguments[2]));
  }
  if (launch.library->custom) {
    auto* to = reinterpret_cast<std::int32_t*>(launch.arguments[0]);
    std::fill_n(to, launch.arguments[2], std::int32_t(launch.arguments[1]));
  }
  if (!launch.library->parsed) return;
  const KernelKey& key = launch.library->key;
  std::vector<void*> arguments;
  for (std::uint64_t value : launch.arguments) arguments.push_back(reinterpret_cast<void*>(value));
  if (const auto& run_kernel = g_state->options.run_kernel) {
    if (const Result<void> ran = run_kernel(key, arguments); !ran) violation(ran.error().text());
    return;
  }
  if (key.type == KernelType::retile) {
    // Oracles read blocks where kernels read tiles, so blocks they stay; tiles take as much room.
    std::memcpy(arguments[1], arguments[0],
                static_cast<std::size_t>(key.n * row_bytes(key.format, key.k)));
    return;
  }
  if (key.type == KernelType::gemm_operand || key.type == KernelType::gemm) {
    // Likewise with floats and operands. Those of 16 bits have no room for floats: nothing is run.
    if (key.format != Format::f32) return;
    if (key.type == KernelType::gemm_operand) {
      std::memcpy(arguments[1], arguments[0],
                  sizeof(float) * static_cast<std::size_t>(key.n) * std::size_t(key.k));
      return;
    }
  }
  row(key.type).oracle(key, arguments, 0, 1);
}

FakeLaunch make_launch(CUfunction function, void** parameters) {
  FakeLaunch launch;
  launch.library = reinterpret_cast<FakeLibrary*>(function);
  for (std::size_t i = 0; i < launch.library->arguments; ++i) {
    launch.arguments.push_back(*static_cast<std::uint64_t*>(parameters[i]));
  }
  return launch;
}

}  // namespace lathe::testing
