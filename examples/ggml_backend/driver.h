// Owns the few calls of the CUDA driver that a ggml back end makes for itself: memory, copies, a
// stream, graphs. Found at run time; no header of CUDA is needed.
#pragma once

#include <cstddef>
#include <cstdint>

struct CUctx_st;
struct CUstream_st;
struct CUgraph_st;
struct CUgraphExec_st;

namespace lathe_ggml {

// Name in the driver, name here, parameters. All return 0 for success.
#define LATHE_GGML_DRIVER(X)                                                                  \
  X(cuInit, init, (unsigned))                                                                 \
  X(cuGetErrorString, error_string, (int, const char**))                                      \
  X(cuDeviceGetCount, device_count, (int*))                                                   \
  X(cuDeviceGet, device_get, (int*, int))                                                     \
  X(cuDeviceGetName, device_name, (char*, int, int))                                          \
  X(cuDeviceTotalMem_v2, device_memory, (std::size_t*, int))                                  \
  X(cuDevicePrimaryCtxRetain, retain_context, (CUctx_st**, int))                              \
  X(cuCtxPushCurrent_v2, push_context, (CUctx_st*))                                           \
  X(cuCtxPopCurrent_v2, pop_context, (CUctx_st**))                                            \
  X(cuMemGetInfo_v2, memory_info, (std::size_t*, std::size_t*))                               \
  X(cuMemAlloc_v2, allocate, (std::uint64_t*, std::size_t))                                   \
  X(cuMemFree_v2, free, (std::uint64_t))                                                      \
  X(cuMemcpyHtoDAsync_v2, to_device, (std::uint64_t, const void*, std::size_t, CUstream_st*)) \
  X(cuMemcpyDtoHAsync_v2, to_host, (void*, std::uint64_t, std::size_t, CUstream_st*))         \
  X(cuMemcpyDtoDAsync_v2, within, (std::uint64_t, std::uint64_t, std::size_t, CUstream_st*))  \
  X(cuMemsetD8Async, fill, (std::uint64_t, unsigned char, std::size_t, CUstream_st*))         \
  X(cuStreamCreate, create_stream, (CUstream_st**, unsigned))                                 \
  X(cuStreamSynchronize, wait, (CUstream_st*))                                                \
  X(cuStreamBeginCapture_v2, begin_capture, (CUstream_st*, int))                              \
  X(cuStreamEndCapture, end_capture, (CUstream_st*, CUgraph_st**))                            \
  X(cuGraphInstantiateWithFlags, instantiate, (CUgraphExec_st**, CUgraph_st*, std::uint64_t)) \
  X(cuGraphLaunch, launch_graph, (CUgraphExec_st*, CUstream_st*))                             \
  X(cuGraphExecDestroy, destroy_executable, (CUgraphExec_st*))                                \
  X(cuGraphDestroy, destroy_graph, (CUgraph_st*))

struct Driver {
#define LATHE_GGML_MEMBER(symbol, name, parameters) int(*name) parameters = nullptr;
  LATHE_GGML_DRIVER(LATHE_GGML_MEMBER)
#undef LATHE_GGML_MEMBER
  int devices = 0;
};

// The machine's driver, or null where there is none or no GPU.
const Driver* driver();

}  // namespace lathe_ggml
