// Owns the few driver calls of the C examples.
#include "examples/gpu_memory.h"

#include <dlfcn.h>

static void* driver;

// The driver's functions return 0 for success.
static int call_failed(int status) {
  return status != 0;
}

int gpu_open(struct gpu* gpu) {
  driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver) return 0;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*retain)(struct CUctx_st**, int) =
      (int (*)(struct CUctx_st**, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
  int (*set_current)(struct CUctx_st*) =
      (int (*)(struct CUctx_st*))dlsym(driver, "cuCtxSetCurrent");
  int (*create_stream)(struct CUstream_st**, unsigned) =
      (int (*)(struct CUstream_st**, unsigned))dlsym(driver, "cuStreamCreate");
  return init && retain && set_current && create_stream && !call_failed(init(0)) &&
         !call_failed(retain(&gpu->context, 0)) && !call_failed(set_current(gpu->context)) &&
         !call_failed(create_stream(&gpu->stream, 1));
}

uint64_t gpu_upload(const void* from, size_t bytes) {
  int (*allocate)(uint64_t*, size_t) = (int (*)(uint64_t*, size_t))dlsym(driver, "cuMemAlloc_v2");
  int (*copy)(uint64_t, const void*, size_t) =
      (int (*)(uint64_t, const void*, size_t))dlsym(driver, "cuMemcpyHtoD_v2");
  uint64_t address = 0;
  if (!allocate || !copy || call_failed(allocate(&address, bytes))) return 0;
  return call_failed(copy(address, from, bytes)) ? 0 : address;
}

int gpu_download(const struct gpu* gpu, void* to, uint64_t from, size_t bytes) {
  int (*wait)(struct CUstream_st*) =
      (int (*)(struct CUstream_st*))dlsym(driver, "cuStreamSynchronize");
  int (*copy)(void*, uint64_t, size_t) =
      (int (*)(void*, uint64_t, size_t))dlsym(driver, "cuMemcpyDtoH_v2");
  return wait && copy && !call_failed(wait(gpu->stream)) && !call_failed(copy(to, from, bytes));
}
