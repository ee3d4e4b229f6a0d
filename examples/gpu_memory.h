// Owns the host engine's side of the C examples: a context, a stream and device memory of its own,
// through a driver that is looked for at run time. An engine that uses CUDA has all of this.
#ifndef LATHE_EXAMPLES_GPU_MEMORY_H
#define LATHE_EXAMPLES_GPU_MEMORY_H

#include <stddef.h>
#include <stdint.h>

struct CUctx_st;
struct CUstream_st;

struct gpu {
  struct CUctx_st* context;  // current on this thread
  struct CUstream_st* stream;
};

// 1, or 0 where there is no driver or no GPU.
int gpu_open(struct gpu* gpu);
// Device memory with a copy of `bytes` bytes of `from`; 0 on failure.
uint64_t gpu_upload(const void* from, size_t bytes);
// After the work on the stream. 1, or 0 on failure.
int gpu_download(const struct gpu* gpu, void* to, uint64_t from, size_t bytes);

#endif  // LATHE_EXAMPLES_GPU_MEMORY_H
