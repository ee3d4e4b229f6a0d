// Owns the example of one kernel in a C engine: name it, read its PTX, launch it on the engine's
// own stream with the engine's own pointers.
#include <stdio.h>

#include "examples/gpu_memory.h"
#include "lathe/lathe.h"

enum { ROWS = 8, K = 256 };
static const char* const kKernel = "gemv.q8_0.k256.n8.w4";  // y[8] = W[8][256] . x[256]

struct q8_0_block {  // 32 weights: a scale in f16, and bytes
  uint16_t scale;
  int8_t values[32];
};

static int failed(lathe_status status) {
  lathe_error error = {.struct_size = sizeof error};
  if (status == LATHE_OK) return 0;
  lathe_last_error(&error);
  fprintf(stderr, "%s\n", error.text);
  return 1;
}

static int launch(const lathe_key* key, const struct gpu* gpu) {
  static struct q8_0_block weights[ROWS][K / 32];
  static float x[K], y[ROWS];
  for (int i = 0; i < K; ++i) x[i] = 1.0f / K;
  for (int i = 0; i < ROWS * K; ++i) {
    weights[i / K][i % K / 32].scale = 0x3c00;  // 1
    weights[i / K][i % K / 32].values[i % 32] = (int8_t)(i / K + 1);
  }
  const lathe_device_options options = {.struct_size = sizeof options, .context = gpu->context};
  const uint64_t arguments[] = {gpu_upload(weights, sizeof weights), gpu_upload(x, sizeof x),
                                gpu_upload(y, sizeof y)};  // in the order of the parameters
  lathe_device* device = NULL;
  lathe_kernel* kernel = NULL;
  const int bad = failed(lathe_device_open(&options, &device)) ||
                  failed(lathe_kernel_load(device, key, &kernel)) ||
                  failed(lathe_kernel_launch(kernel, arguments, 3, gpu->stream)) ||
                  !gpu_download(gpu, y, arguments[2], sizeof y);
  if (!bad) printf("y[0] = %g, y[%d] = %g\n", y[0], ROWS - 1, y[ROWS - 1]);
  lathe_kernel_close(kernel);
  lathe_device_close(device);
  return bad;
}

int main(void) {
  struct gpu gpu = {0};
  lathe_key* key = NULL;
  lathe_compilers* compilers = NULL;
  lathe_ptx* ptx = NULL;
  lathe_ptx_info info = {.struct_size = sizeof info};
  if (failed(lathe_key_parse(kKernel, &key)) || failed(lathe_compilers_open(NULL, &compilers)) ||
      failed(lathe_ptx_emit(compilers, key, "sm_80", LATHE_ROUTE_TEXT, &ptx)) ||
      failed(lathe_ptx_get_info(ptx, &info)))
    return 1;
  printf("%s: %zu bytes of PTX, %u blocks of %u threads\n", info.entry, info.text_bytes,
         (unsigned)info.geometry.grid_x, (unsigned)info.geometry.threads);
  int bad = 0;
  if (gpu_open(&gpu)) {
    bad = launch(key, &gpu);
  } else {
    printf("There is no GPU here to launch it on.\n");
  }
  lathe_ptx_close(ptx);
  lathe_compilers_close(compilers);
  lathe_key_close(key);
  return bad;
}
