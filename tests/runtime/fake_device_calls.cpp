// Owns the fake driver's calls about devices, contexts and memory.
#include <cstdlib>
#include <cstring>

#include "tests/runtime/fake_state.h"

namespace lathe::testing {
namespace {

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
CUresult fake_total_memory(std::size_t* bytes, CUdevice) {
  FAKE_ENTER_ANYWHERE("cuDeviceTotalMem");
  *bytes = g_state->options.memory;
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
      *value = g_state->options.shared_memory;
      break;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
      *value = g_state->options.stream_memory_operations ? 1 : 0;
      break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      *value = g_state->options.cache_bytes;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = g_state->options.multiprocessors;
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
  if (g_state->primary.retained == 0) g_state->primary.lost = CUDA_SUCCESS;
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
  *free = g_state->options.memory - g_state->options.others - g_state->allocated;
  return CUDA_SUCCESS;
}
CUresult fake_alloc(CUdeviceptr* pointer, std::size_t bytes) {
  FAKE_ENTER("cuMemAlloc");
  std::lock_guard lock(g_state->mutex);
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const FakeOptions& options = g_state->options;
  if (options.others + g_state->allocated + bytes > options.memory) return CUDA_ERROR_OUT_OF_MEMORY;
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  *pointer = reinterpret_cast<CUdeviceptr>(memory);
  g_state->buffers[*pointer] = bytes;
  g_state->allocated += bytes;
  return CUDA_SUCCESS;
}
CUresult fake_free(CUdeviceptr pointer) {
  const CUresult status = enter("cuMemFree");
  std::lock_guard lock(g_state->mutex);
  for (FakeStream* stream : g_state->streams) finish(*stream, "cuMemFree");
  finish(g_state->default_stream, "cuMemFree");
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
  refuse_capture(stream, "cuMemcpyHtoDAsync");
  check_range(to, bytes, "cuMemcpyHtoDAsync");
  bool pinned = false;
  {
    std::lock_guard lock(g_state->mutex);
    pinned = g_state->pinned.contains(const_cast<void*>(from));
    g_state->bytes_to_device += std::int64_t(bytes);
  }
  if (!g_state->options.copies) return CUDA_SUCCESS;
  // From pinned memory the bytes are taken when the stream gets there, else now.
  std::vector<char> now;
  if (!pinned) now.assign(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
  put(stream, [=, now = std::move(now)] {
    std::memcpy(reinterpret_cast<void*>(to), pinned ? from : now.data(), bytes);
  });
  return CUDA_SUCCESS;
}
CUresult fake_to_host(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  FAKE_ENTER("cuMemcpyDtoHAsync");
  refuse_capture(stream, "cuMemcpyDtoHAsync");
  check_range(from, bytes, "cuMemcpyDtoHAsync");
  {
    std::lock_guard lock(g_state->mutex);
    g_state->bytes_to_host += std::int64_t(bytes);
  }
  if (!g_state->options.copies) return CUDA_SUCCESS;
  put(stream, [=] { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); });
  return CUDA_SUCCESS;
}
CUresult fake_within(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  FAKE_ENTER("cuMemcpyDtoDAsync");
  check_range(from, bytes, "cuMemcpyDtoDAsync");
  check_range(to, bytes, "cuMemcpyDtoDAsync");
  if (!g_state->options.copies) return CUDA_SUCCESS;
  put(stream, [=] {
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  });
  return CUDA_SUCCESS;
}
CUresult fake_memset(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream) {
  FAKE_ENTER("cuMemsetD8Async");
  check_range(to, bytes, "cuMemsetD8Async");
  put(stream, [=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
  return CUDA_SUCCESS;
}

}  // namespace

void fill_device_calls(Driver& table) {
  table.cuInit = fake_init;
  table.cuDriverGetVersion = fake_driver_version;
  table.cuGetErrorName = fake_error_name;
  table.cuGetErrorString = fake_error_string;
  table.cuDeviceGet = fake_device_get;
  table.cuDeviceGetCount = fake_device_count;
  table.cuDeviceGetName = fake_device_name;
  table.cuDeviceGetAttribute = fake_device_attribute;
  table.cuDeviceTotalMem = fake_total_memory;
  table.cuDevicePrimaryCtxRetain = fake_primary_retain;
  table.cuDevicePrimaryCtxRelease = fake_primary_release;
  table.cuCtxPushCurrent = fake_push;
  table.cuCtxPopCurrent = fake_pop;
  table.cuCtxGetDevice = fake_context_device;
  table.cuMemGetInfo = fake_memory_info;
  table.cuMemAlloc = fake_alloc;
  table.cuMemFree = fake_free;
  table.cuMemAllocHost = fake_alloc_host;
  table.cuMemFreeHost = fake_free_host;
  table.cuMemcpyHtoDAsync = fake_to_device;
  table.cuMemcpyDtoHAsync = fake_to_host;
  table.cuMemcpyDtoDAsync = fake_within;
  table.cuMemsetD8Async = fake_memset;
}

}  // namespace lathe::testing
