// Owns the CUDA driver as a table of functions, found at run time.
//
// Nothing links libcuda: Lathe loads, emits and plans on machines without it. Whoever calls the
// driver is handed a `const Driver&`, so tests pass a table of their own.
#pragma once

#include <cuda.h>

#include <string>

#include "lathe/codegen/result.h"

namespace lathe {

// Every driver function Lathe calls. <cuda.h> renames some (cuMemFree is cuMemFree_v2): the pointer
// type follows the renamed declaration while cuGetProcAddress wants the plain name, hence a macro.
#define LATHE_DRIVER_FUNCTIONS(X)                \
  X(cuInit)                                      \
  X(cuDriverGetVersion)                          \
  X(cuGetErrorName)                              \
  X(cuGetErrorString)                            \
  X(cuDeviceGet)                                 \
  X(cuDeviceGetCount)                            \
  X(cuDeviceGetName)                             \
  X(cuDeviceGetAttribute)                        \
  X(cuDeviceTotalMem)                            \
  X(cuDevicePrimaryCtxRetain)                    \
  X(cuDevicePrimaryCtxRelease)                   \
  X(cuCtxPushCurrent)                            \
  X(cuCtxPopCurrent)                             \
  X(cuCtxGetDevice)                              \
  X(cuMemGetInfo)                                \
  X(cuMemAlloc)                                  \
  X(cuMemFree)                                   \
  X(cuMemAllocHost)                              \
  X(cuMemFreeHost)                               \
  X(cuMemcpyHtoDAsync)                           \
  X(cuMemcpyDtoHAsync)                           \
  X(cuMemcpyDtoDAsync)                           \
  X(cuMemsetD8Async)                             \
  X(cuStreamCreate)                              \
  X(cuStreamDestroy)                             \
  X(cuStreamSynchronize)                         \
  X(cuStreamQuery)                               \
  X(cuStreamIsCapturing)                         \
  X(cuStreamWriteValue64)                        \
  X(cuEventCreate)                               \
  X(cuEventDestroy)                              \
  X(cuEventRecord)                               \
  X(cuEventSynchronize)                          \
  X(cuEventElapsedTime)                          \
  X(cuLibraryLoadData)                           \
  X(cuLibraryUnload)                             \
  X(cuLibraryGetKernel)                          \
  X(cuKernelGetFunction)                         \
  X(cuKernelGetAttribute)                        \
  X(cuKernelSetAttribute)                        \
  X(cuLaunchKernel)                              \
  X(cuLaunchCooperativeKernel)                   \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor) \
  X(cuGraphCreate)                               \
  X(cuGraphDestroy)                              \
  X(cuGraphAddKernelNode)                        \
  X(cuGraphInstantiateWithFlags)                 \
  X(cuGraphExecDestroy)                          \
  X(cuGraphLaunch)                               \
  X(cuGraphUpload)                               \
  X(cuLinkCreate)                                \
  X(cuLinkAddData)                               \
  X(cuLinkComplete)                              \
  X(cuLinkDestroy)

// How one node of a graph waits for another: CUgraphEdgeData, which <cuda.h> has since 12.3.
struct GraphEdge {
  unsigned char from_port = 0;  // 1: when the kernel lets its dependents go (programmatic)
  unsigned char to_port = 0;
  unsigned char type = 0;  // 1: programmatic, the dependent waits by itself
  unsigned char reserved[5] = {};
};
inline constexpr GraphEdge kEarlyEdge = {.from_port = 1, .type = 1};

struct Driver {
#define LATHE_DRIVER_MEMBER(name) decltype(&::name) name = nullptr;
  LATHE_DRIVER_FUNCTIONS(LATHE_DRIVER_MEMBER)
#undef LATHE_DRIVER_MEMBER
  // Null where the driver is older than CUDA 12.3.
  CUresult (*cuGraphAddDependencies_v2)(CUgraph, const CUgraphNode* from, const CUgraphNode* to,
                                        const GraphEdge*, std::size_t) = nullptr;
};

// The machine's driver, initialized. Loaded on the first call; the outcome, good or bad, is kept
// for the life of the process. Fails with Code::no_driver and the reason: the library is missing,
// it is the toolkit's stub, it has no device, or it is too old.
Result<const Driver*> system_driver();

// Loads and initializes the driver from one library, for tests of the failures.
Result<Driver> load_driver(const std::string& library);

// Ok, or an error with details "call" and "status". Formats only on failure.
Result<void> check(const Driver& driver, CUresult status, const char* call);
Error driver_error(const Driver& driver, CUresult status, const char* call);

// "13.0" of 13000.
std::string driver_version_text(int version);
Result<int> driver_version(const Driver& driver);

// Runs driver.cuXxx(...) and returns its error from the enclosing function.
#define LATHE_DRIVER_CALL(driver, name, ...)                                                  \
  do {                                                                                        \
    if (CUresult lathe_status_ = (driver).name(__VA_ARGS__); lathe_status_ != CUDA_SUCCESS) { \
      return ::lathe::driver_error((driver), lathe_status_, #name);                           \
    }                                                                                         \
  } while (false)

}  // namespace lathe
