// Owns the state and the functions of the fake driver.
#include "tests/runtime/fake_driver.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>

#include "lathe/codegen/kernel_table.h"

namespace lathe::testing {
namespace {

constexpr char kImageMark[] = "fake cubin\n";

struct FakeLibrary {
  std::string text;
  bool parsed = false;  // text is a key's; otherwise a kernel that does nothing
  KernelKey key;
  std::size_t arguments = 0;
};
struct FakeLaunch {
  const FakeLibrary* library = nullptr;
  std::vector<std::uint64_t> arguments;
};
struct FakeGraph {
  std::deque<FakeLaunch> nodes;
};
struct FakeStream {
  std::deque<std::function<void()>> queue;
  bool capturing = false;
};
struct FakeContext {
  int retained = 0;
};

struct State {
  FakeOptions options;
  mutable std::mutex mutex;
  std::map<std::string, int, std::less<>> counts;
  int total = 0;
  int fail_in = -1;
  CUresult fail_status = CUDA_SUCCESS;
  std::string failed;
  std::set<std::string> violations;

  FakeContext primary;
  std::vector<std::unique_ptr<FakeContext>> contexts;
  std::map<CUdeviceptr, std::size_t> buffers;
  std::size_t allocated = 0;
  std::map<void*, std::size_t> pinned;
  std::set<FakeStream*> streams;
  std::set<void*> events;
  std::set<FakeLibrary*> libraries;
  std::set<FakeGraph*> graphs;
  std::set<FakeGraph*> executables;
  FakeStream default_stream;
};

State* g_state = nullptr;
thread_local std::vector<FakeContext*> t_contexts;

void violation(const std::string& text) {
  g_state->violations.insert(text);
}

// Counts the call and decides whether it fails. Allocates only for a name it has not seen.
CUresult enter(const char* name, bool needs_context = true) {
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
  if (g_state->fail_in >= 0 && g_state->fail_in-- == 0) {
    g_state->failed = name;
    return g_state->fail_status;
  }
  return CUDA_SUCCESS;
}

#define FAKE_ENTER(name) \
  if (CUresult entered = enter(name); entered != CUDA_SUCCESS) return entered
#define FAKE_ENTER_ANYWHERE(name) \
  if (CUresult entered = enter(name, false); entered != CUDA_SUCCESS) return entered

FakeStream& stream_of(CUstream stream) {
  return stream ? *reinterpret_cast<FakeStream*>(stream) : g_state->default_stream;
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
  while (!stream.queue.empty()) {
    const auto work = std::move(stream.queue.front());
    stream.queue.pop_front();
    work();
  }
}

void run(const FakeLaunch& launch) {
  if (!launch.library->parsed) return;
  std::vector<void*> arguments;
  for (std::uint64_t value : launch.arguments) arguments.push_back(reinterpret_cast<void*>(value));
  row(launch.library->key.type).oracle(launch.library->key, arguments, 0, 1);
}

FakeLaunch make_launch(CUfunction function, void** parameters) {
  FakeLaunch launch;
  launch.library = reinterpret_cast<FakeLibrary*>(function);
  for (std::size_t i = 0; i < launch.library->arguments; ++i) {
    launch.arguments.push_back(*static_cast<std::uint64_t*>(parameters[i]));
  }
  return launch;
}

CUresult fake_init(unsigned) {
  return CUDA_SUCCESS;
}
CUresult fake_driver_version(int* version) {
  FAKE_ENTER_ANYWHERE("cuDriverGetVersion");
  *version = g_state->options.driver_version;
  return CUDA_SUCCESS;
}
CUresult fake_error_name(CUresult, const char** text) {
  *text = "CUDA_ERROR_FAKE";
  return CUDA_SUCCESS;
}
CUresult fake_error_string(CUresult, const char** text) {
  *text = "the test wants it so";
  return CUDA_SUCCESS;
}
CUresult fake_device_get(CUdevice* device, int) {
  FAKE_ENTER_ANYWHERE("cuDeviceGet");
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult fake_device_count(int* count) {
  FAKE_ENTER_ANYWHERE("cuDeviceGetCount");
  *count = 1;
  return CUDA_SUCCESS;
}
CUresult fake_device_name(char* name, int length, CUdevice) {
  FAKE_ENTER_ANYWHERE("cuDeviceGetName");
  std::strncpy(name, "Fake GPU", std::size_t(length));
  return CUDA_SUCCESS;
}
CUresult fake_device_attribute(int* value, CUdevice_attribute attribute, CUdevice) {
  FAKE_ENTER_ANYWHERE("cuDeviceGetAttribute");
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = g_state->options.compute / 10;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = g_state->options.compute % 10;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = 227 * 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
      *value = g_state->options.stream_memory_operations ? 1 : 0;
      break;
    default:
      *value = 1;
  }
  return CUDA_SUCCESS;
}
CUresult fake_primary_retain(CUcontext* context, CUdevice) {
  FAKE_ENTER_ANYWHERE("cuDevicePrimaryCtxRetain");
  std::lock_guard lock(g_state->mutex);
  ++g_state->primary.retained;
  *context = reinterpret_cast<CUcontext>(&g_state->primary);
  return CUDA_SUCCESS;
}
CUresult fake_primary_release(CUdevice) {
  const CUresult status = enter("cuDevicePrimaryCtxRelease", false);
  std::lock_guard lock(g_state->mutex);
  if (--g_state->primary.retained < 0) violation("the primary context was released too often");
  return status;
}
CUresult fake_push(CUcontext context) {
  FAKE_ENTER_ANYWHERE("cuCtxPushCurrent");
  t_contexts.push_back(reinterpret_cast<FakeContext*>(context));
  return CUDA_SUCCESS;
}
CUresult fake_pop(CUcontext* context) {
  const CUresult status = enter("cuCtxPopCurrent");
  if (t_contexts.empty()) return status;
  *context = reinterpret_cast<CUcontext>(t_contexts.back());
  t_contexts.pop_back();
  return status;
}
CUresult fake_context_device(CUdevice* device) {
  FAKE_ENTER("cuCtxGetDevice");
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult fake_memory_info(std::size_t* free, std::size_t* total) {
  FAKE_ENTER("cuMemGetInfo");
  std::lock_guard lock(g_state->mutex);
  *total = g_state->options.memory;
  *free = g_state->options.memory - g_state->allocated;
  return CUDA_SUCCESS;
}
CUresult fake_alloc(CUdeviceptr* pointer, std::size_t bytes) {
  FAKE_ENTER("cuMemAlloc");
  std::lock_guard lock(g_state->mutex);
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (g_state->allocated + bytes > g_state->options.memory) return CUDA_ERROR_OUT_OF_MEMORY;
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  *pointer = reinterpret_cast<CUdeviceptr>(memory);
  g_state->buffers[*pointer] = bytes;
  g_state->allocated += bytes;
  return CUDA_SUCCESS;
}
CUresult fake_free(CUdeviceptr pointer) {
  const CUresult status = enter("cuMemFree");
  for (FakeStream* stream : g_state->streams) drain(*stream);
  drain(g_state->default_stream);
  std::lock_guard lock(g_state->mutex);
  const auto found = g_state->buffers.find(pointer);
  if (found == g_state->buffers.end()) {
    violation("cuMemFree of what is no buffer");
    return CUDA_ERROR_INVALID_VALUE;
  }
  g_state->allocated -= found->second;
  g_state->buffers.erase(found);
  std::free(reinterpret_cast<void*>(pointer));
  return status;
}
CUresult fake_alloc_host(void** pointer, std::size_t bytes) {
  FAKE_ENTER("cuMemAllocHost");
  *pointer = std::malloc(bytes);
  std::lock_guard lock(g_state->mutex);
  g_state->pinned[*pointer] = bytes;
  return CUDA_SUCCESS;
}
CUresult fake_free_host(void* pointer) {
  const CUresult status = enter("cuMemFreeHost");
  std::lock_guard lock(g_state->mutex);
  if (g_state->pinned.erase(pointer) == 0) violation("cuMemFreeHost of what is not pinned");
  std::free(pointer);
  return status;
}
CUresult fake_to_device(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  FAKE_ENTER("cuMemcpyHtoDAsync");
  check_range(to, bytes, "cuMemcpyHtoDAsync");
  bool pinned = false;
  {
    std::lock_guard lock(g_state->mutex);
    pinned = g_state->pinned.contains(const_cast<void*>(from));
  }
  // From pinned memory the bytes are taken when the stream gets there, else now.
  std::vector<char> now;
  if (!pinned) now.assign(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
  stream_of(stream).queue.push_back([=, now = std::move(now)] {
    std::memcpy(reinterpret_cast<void*>(to), pinned ? from : now.data(), bytes);
  });
  return CUDA_SUCCESS;
}
CUresult fake_to_host(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  FAKE_ENTER("cuMemcpyDtoHAsync");
  check_range(from, bytes, "cuMemcpyDtoHAsync");
  stream_of(stream).queue.push_back(
      [=] { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); });
  return CUDA_SUCCESS;
}
CUresult fake_memset(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream) {
  FAKE_ENTER("cuMemsetD8Async");
  check_range(to, bytes, "cuMemsetD8Async");
  stream_of(stream).queue.push_back(
      [=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
  return CUDA_SUCCESS;
}
CUresult fake_stream_create(CUstream* stream, unsigned) {
  FAKE_ENTER("cuStreamCreate");
  auto* made = new FakeStream;
  std::lock_guard lock(g_state->mutex);
  g_state->streams.insert(made);
  *stream = reinterpret_cast<CUstream>(made);
  return CUDA_SUCCESS;
}
CUresult fake_stream_destroy(CUstream stream) {
  const CUresult status = enter("cuStreamDestroy");
  auto* gone = reinterpret_cast<FakeStream*>(stream);
  drain(*gone);
  std::lock_guard lock(g_state->mutex);
  if (g_state->streams.erase(gone) == 0) violation("cuStreamDestroy of what is no stream");
  delete gone;
  return status;
}
CUresult fake_stream_synchronize(CUstream stream) {
  const CUresult status = enter("cuStreamSynchronize");
  drain(stream_of(stream));
  return status;
}
CUresult fake_capturing(CUstream stream, CUstreamCaptureStatus* status) {
  FAKE_ENTER("cuStreamIsCapturing");
  *status =
      stream_of(stream).capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult fake_write_value(CUstream stream, CUdeviceptr to, cuuint64_t value, unsigned) {
  FAKE_ENTER("cuStreamWriteValue64");
  check_range(to, sizeof value, "cuStreamWriteValue64");
  if (to % 8 != 0) violation("cuStreamWriteValue64 is misaligned");
  if (g_state->options.execute) {
    stream_of(stream).queue.push_back(
        [=] { std::memcpy(reinterpret_cast<void*>(to), &value, sizeof value); });
  }
  return CUDA_SUCCESS;
}
CUresult fake_event_create(CUevent* event, unsigned) {
  FAKE_ENTER("cuEventCreate");
  void* made = new FakeStream*(nullptr);
  std::lock_guard lock(g_state->mutex);
  g_state->events.insert(made);
  *event = reinterpret_cast<CUevent>(made);
  return CUDA_SUCCESS;
}
CUresult fake_event_destroy(CUevent event) {
  const CUresult status = enter("cuEventDestroy");
  std::lock_guard lock(g_state->mutex);
  if (g_state->events.erase(event) == 0) violation("cuEventDestroy of what is no event");
  delete reinterpret_cast<FakeStream**>(event);
  return status;
}
CUresult fake_event_record(CUevent event, CUstream stream) {
  FAKE_ENTER("cuEventRecord");
  *reinterpret_cast<FakeStream**>(event) = &stream_of(stream);
  return CUDA_SUCCESS;
}
CUresult fake_event_synchronize(CUevent event) {
  const CUresult status = enter("cuEventSynchronize");
  if (FakeStream* stream = *reinterpret_cast<FakeStream**>(event)) drain(*stream);
  return status;
}
CUresult fake_event_elapsed(float* milliseconds, CUevent, CUevent) {
  FAKE_ENTER("cuEventElapsedTime");
  *milliseconds = 2.0f;
  return CUDA_SUCCESS;
}
CUresult fake_library_load(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  FAKE_ENTER("cuLibraryLoadData");
  // Like a cubin, an image says itself how long it is: up to a terminating null.
  const char* image = static_cast<const char*>(code);
  if (std::strncmp(image, kImageMark, sizeof kImageMark - 1) != 0) return CUDA_ERROR_INVALID_IMAGE;
  auto* made = new FakeLibrary;
  made->text = image + sizeof kImageMark - 1;
  if (auto key = parse_key(made->text)) {
    made->parsed = true;
    made->key = key.value();
    made->arguments = row(made->key.type).params(made->key).size();
  }
  std::lock_guard lock(g_state->mutex);
  g_state->libraries.insert(made);
  *library = reinterpret_cast<CUlibrary>(made);
  return CUDA_SUCCESS;
}
CUresult fake_library_unload(CUlibrary library) {
  const CUresult status = enter("cuLibraryUnload");
  auto* gone = reinterpret_cast<FakeLibrary*>(library);
  std::lock_guard lock(g_state->mutex);
  if (g_state->libraries.erase(gone) == 0) violation("cuLibraryUnload of what is no library");
  delete gone;
  return status;
}
CUresult fake_library_kernel(CUkernel* kernel, CUlibrary library, const char* name) {
  FAKE_ENTER("cuLibraryGetKernel");
  const auto* from = reinterpret_cast<FakeLibrary*>(library);
  if (from->parsed && from->key.symbol() != name) return CUDA_ERROR_NOT_FOUND;
  *kernel = reinterpret_cast<CUkernel>(library);
  return CUDA_SUCCESS;
}
CUresult fake_kernel_function(CUfunction* function, CUkernel kernel) {
  FAKE_ENTER("cuKernelGetFunction");
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}
CUresult fake_kernel_attribute(int* value, CUfunction_attribute attribute, CUkernel, CUdevice) {
  FAKE_ENTER("cuKernelGetAttribute");
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return CUDA_SUCCESS;
}
CUresult fake_set_attribute(CUfunction_attribute, int, CUkernel, CUdevice) {
  FAKE_ENTER("cuKernelSetAttribute");
  return CUDA_SUCCESS;
}
CUresult fake_launch(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned,
                     unsigned, unsigned, CUstream stream, void** parameters, void**) {
  FAKE_ENTER("cuLaunchKernel");
  if (!g_state->options.execute) return CUDA_SUCCESS;
  stream_of(stream).queue.push_back([launch = make_launch(function, parameters)] { run(launch); });
  return CUDA_SUCCESS;
}
CUresult fake_graph_create(CUgraph* graph, unsigned) {
  FAKE_ENTER("cuGraphCreate");
  auto* made = new FakeGraph;
  std::lock_guard lock(g_state->mutex);
  g_state->graphs.insert(made);
  *graph = reinterpret_cast<CUgraph>(made);
  return CUDA_SUCCESS;
}
CUresult fake_graph_destroy(CUgraph graph) {
  const CUresult status = enter("cuGraphDestroy");
  std::lock_guard lock(g_state->mutex);
  if (g_state->graphs.erase(reinterpret_cast<FakeGraph*>(graph)) == 0) {
    violation("cuGraphDestroy of what is no graph");
  }
  delete reinterpret_cast<FakeGraph*>(graph);
  return status;
}
CUresult fake_graph_add(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                        std::size_t count, const CUDA_KERNEL_NODE_PARAMS* params) {
  FAKE_ENTER("cuGraphAddKernelNode");
  auto* to = reinterpret_cast<FakeGraph*>(graph);
  // The nodes run in the order they were added; that is only right for a chain.
  const void* last = to->nodes.empty() ? nullptr : &to->nodes.back();
  const void* given = count == 1 ? static_cast<const void*>(dependencies[0]) : nullptr;
  if (count > 1 || given != last) violation("the graph is no chain");
  to->nodes.push_back(make_launch(params->func, params->kernelParams));
  *node = reinterpret_cast<CUgraphNode>(&to->nodes.back());
  return CUDA_SUCCESS;
}
CUresult fake_graph_instantiate(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  FAKE_ENTER("cuGraphInstantiateWithFlags");
  auto* made = new FakeGraph(*reinterpret_cast<FakeGraph*>(graph));
  std::lock_guard lock(g_state->mutex);
  g_state->executables.insert(made);
  *executable = reinterpret_cast<CUgraphExec>(made);
  return CUDA_SUCCESS;
}
CUresult fake_executable_destroy(CUgraphExec executable) {
  const CUresult status = enter("cuGraphExecDestroy");
  std::lock_guard lock(g_state->mutex);
  if (g_state->executables.erase(reinterpret_cast<FakeGraph*>(executable)) == 0) {
    violation("cuGraphExecDestroy of what is no executable graph");
  }
  delete reinterpret_cast<FakeGraph*>(executable);
  return status;
}
CUresult fake_graph_launch(CUgraphExec executable, CUstream stream) {
  FAKE_ENTER("cuGraphLaunch");
  if (!g_state->options.execute) return CUDA_SUCCESS;
  auto* graph = reinterpret_cast<FakeGraph*>(executable);
  stream_of(stream).queue.push_back([graph] {
    for (const FakeLaunch& launch : graph->nodes) run(launch);
  });
  return CUDA_SUCCESS;
}
CUresult fake_graph_upload(CUgraphExec, CUstream) {
  FAKE_ENTER("cuGraphUpload");
  return CUDA_SUCCESS;
}
CUresult fake_link_create(unsigned, CUjit_option*, void**, CUlinkState*) {
  FAKE_ENTER("cuLinkCreate");
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult fake_link_add(CUlinkState, CUjitInputType, void*, std::size_t, const char*, unsigned,
                       CUjit_option*, void**) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult fake_link_complete(CUlinkState, void**, std::size_t*) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult fake_link_destroy(CUlinkState) {
  return CUDA_SUCCESS;
}

}  // namespace

FakeDriver::FakeDriver(FakeOptions options) {
  g_state = new State;
  g_state->options = options;
  table_.cuInit = fake_init;
  table_.cuDriverGetVersion = fake_driver_version;
  table_.cuGetErrorName = fake_error_name;
  table_.cuGetErrorString = fake_error_string;
  table_.cuDeviceGet = fake_device_get;
  table_.cuDeviceGetCount = fake_device_count;
  table_.cuDeviceGetName = fake_device_name;
  table_.cuDeviceGetAttribute = fake_device_attribute;
  table_.cuDevicePrimaryCtxRetain = fake_primary_retain;
  table_.cuDevicePrimaryCtxRelease = fake_primary_release;
  table_.cuCtxPushCurrent = fake_push;
  table_.cuCtxPopCurrent = fake_pop;
  table_.cuCtxGetDevice = fake_context_device;
  table_.cuMemGetInfo = fake_memory_info;
  table_.cuMemAlloc = fake_alloc;
  table_.cuMemFree = fake_free;
  table_.cuMemAllocHost = fake_alloc_host;
  table_.cuMemFreeHost = fake_free_host;
  table_.cuMemcpyHtoDAsync = fake_to_device;
  table_.cuMemcpyDtoHAsync = fake_to_host;
  table_.cuMemsetD8Async = fake_memset;
  table_.cuStreamCreate = fake_stream_create;
  table_.cuStreamDestroy = fake_stream_destroy;
  table_.cuStreamSynchronize = fake_stream_synchronize;
  table_.cuStreamIsCapturing = fake_capturing;
  table_.cuStreamWriteValue64 = fake_write_value;
  table_.cuEventCreate = fake_event_create;
  table_.cuEventDestroy = fake_event_destroy;
  table_.cuEventRecord = fake_event_record;
  table_.cuEventSynchronize = fake_event_synchronize;
  table_.cuEventElapsedTime = fake_event_elapsed;
  table_.cuLibraryLoadData = fake_library_load;
  table_.cuLibraryUnload = fake_library_unload;
  table_.cuLibraryGetKernel = fake_library_kernel;
  table_.cuKernelGetFunction = fake_kernel_function;
  table_.cuKernelGetAttribute = fake_kernel_attribute;
  table_.cuKernelSetAttribute = fake_set_attribute;
  table_.cuLaunchKernel = fake_launch;
  table_.cuGraphCreate = fake_graph_create;
  table_.cuGraphDestroy = fake_graph_destroy;
  table_.cuGraphAddKernelNode = fake_graph_add;
  table_.cuGraphInstantiateWithFlags = fake_graph_instantiate;
  table_.cuGraphExecDestroy = fake_executable_destroy;
  table_.cuGraphLaunch = fake_graph_launch;
  table_.cuGraphUpload = fake_graph_upload;
  table_.cuLinkCreate = fake_link_create;
  table_.cuLinkAddData = fake_link_add;
  table_.cuLinkComplete = fake_link_complete;
  table_.cuLinkDestroy = fake_link_destroy;
}

FakeDriver::~FakeDriver() {
  for (FakeStream* stream : g_state->streams) delete stream;
  delete g_state;
  g_state = nullptr;
  t_contexts.clear();
}

Platform FakeDriver::platform() const {
  Platform platform;
  platform.driver = &table_;
  platform.toolchain = [] { return std::make_unique<FakeToolchain>(); };
  return platform;
}

void FakeDriver::fail_call(int index, CUresult status) {
  std::lock_guard lock(g_state->mutex);
  g_state->fail_in = index;
  g_state->fail_status = status;
  g_state->failed.clear();
}

void FakeDriver::reset_counts() {
  std::lock_guard lock(g_state->mutex);
  for (auto& [name, count] : g_state->counts) count = 0;
  g_state->total = 0;
}

int FakeDriver::calls() const {
  std::lock_guard lock(g_state->mutex);
  return g_state->total;
}

int FakeDriver::calls(const std::string& name) const {
  std::lock_guard lock(g_state->mutex);
  const auto found = g_state->counts.find(name);
  return found == g_state->counts.end() ? 0 : found->second;
}

std::string FakeDriver::failed_call() const {
  std::lock_guard lock(g_state->mutex);
  return g_state->failed;
}

std::string FakeDriver::leaks() const {
  std::lock_guard lock(g_state->mutex);
  std::string text;
  const auto add = [&](std::size_t count, const char* what) {
    if (count > 0) text += std::to_string(count) + " " + what + ", ";
  };
  add(g_state->buffers.size(), "device buffers");
  add(g_state->pinned.size(), "pinned buffers");
  add(g_state->streams.size(), "streams");
  add(g_state->events.size(), "events");
  add(g_state->libraries.size(), "libraries");
  add(g_state->graphs.size(), "graphs");
  add(g_state->executables.size(), "executable graphs");
  add(std::size_t(g_state->primary.retained), "retained contexts");
  add(t_contexts.size(), "pushed contexts");
  return text;
}

std::vector<std::string> FakeDriver::violations() const {
  std::lock_guard lock(g_state->mutex);
  return {g_state->violations.begin(), g_state->violations.end()};
}

CUcontext FakeDriver::make_context() {
  g_state->contexts.push_back(std::make_unique<FakeContext>());
  return reinterpret_cast<CUcontext>(g_state->contexts.back().get());
}

CUcontext FakeDriver::current_context() const {
  return t_contexts.empty() ? nullptr : reinterpret_cast<CUcontext>(t_contexts.back());
}

void FakeDriver::push_context(CUcontext context) {
  t_contexts.push_back(reinterpret_cast<FakeContext*>(context));
}

CUstream FakeDriver::make_stream() {
  auto* stream = new FakeStream;
  g_state->streams.insert(stream);
  return reinterpret_cast<CUstream>(stream);
}

void FakeDriver::set_capturing(CUstream stream, bool capturing) {
  stream_of(stream).capturing = capturing;
}

namespace {

class FakeAssembler final : public Assembler {
 public:
  const std::string& name() const override {
    static const std::string name = "fake assembler 1.0";
    return name;
  }
  Result<Cubin> assemble(std::string_view ptx, const Target&) const override {
    const std::string text = kImageMark + std::string(ptx);
    const auto* bytes = reinterpret_cast<const std::byte*>(text.c_str());
    return Cubin(bytes, bytes + text.size() + 1);
  }
};

}  // namespace

Result<void> FakeToolchain::covers(const KernelKey& key, Route route) const {
  if (route != Route::text || key.type == KernelType::gemv) return {};
  return Error{Code::unsupported, "the fake text route knows gemv only", {}};
}

Result<std::string> FakeToolchain::compiler(Route route) const {
  return std::string("fake ") + route_name(route);
}

Result<Ptx> FakeToolchain::emit(const KernelKey& key, const Target& target, Route route) const {
  Ptx ptx;
  ptx.text = key.text();
  ptx.entry = key.symbol();
  ptx.geometry = row(key.type).geometry(key);
  ptx.route = route;
  ptx.target = target;
  ptx.compiler = compiler(route).value();
  return ptx;
}

const Assembler& FakeToolchain::assembler() const {
  static const FakeAssembler assembler;
  return assembler;
}

}  // namespace lathe::testing
