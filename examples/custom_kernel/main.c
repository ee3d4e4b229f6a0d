// Owns the example of a kernel of the engine's own, in CUDA C++: Lathe compiles it for the GPU that
// is there, keeps the machine code in its disk cache, and launches it like any other.
#include <stdio.h>

#include "examples/gpu_memory.h"
#include "lathe/lathe.h"

enum { N = 1000, THREADS = 256 };

static const char kSource[] =
    "extern \"C\" __global__ void axpy(float* y, const float* x, float a, int n) {\n"
    "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "  if (i < n) y[i] = fmaf(a, x[i], y[i]);\n"
    "}\n";

static int failed(lathe_status status) {
  lathe_error error = {.struct_size = sizeof error};
  if (status == LATHE_OK) return 0;
  lathe_last_error(&error);
  fprintf(stderr, "%s\n", error.text);
  return 1;
}

// A value travels in the low bytes of its argument.
static uint64_t value_of(float number) {
  union {
    float number;
    uint64_t bits;
  } argument = {.bits = 0};
  argument.number = number;
  return argument.bits;
}

int main(void) {
  struct gpu gpu = {0};
  if (!gpu_open(&gpu)) {
    printf("There is no GPU here to compile the kernel for.\n");
    return 0;
  }
  static float x[N], y[N];
  for (int i = 0; i < N; ++i) x[i] = (float)i;
  const lathe_custom_parameter parameters[] = {{.name = "y", .alignment = 4},
                                               {.name = "x", .alignment = 4},
                                               {.name = "a", .alignment = 0},
                                               {.name = "n", .alignment = 0}};
  const lathe_custom_kernel axpy = {
      .struct_size = sizeof axpy,
      .name = "axpy",
      .source = kSource,
      .entry = "axpy",
      .language = LATHE_LANGUAGE_CUDA,
      .parameter_count = 4,
      .parameters = parameters,
      .geometry = {.grid_x = (N + THREADS - 1) / THREADS, .grid_y = 1, .threads = THREADS}};
  const uint64_t arguments[] = {gpu_upload(y, sizeof y), gpu_upload(x, sizeof x), value_of(2), N};
  const lathe_device_options options = {.struct_size = sizeof options, .context = gpu.context};
  lathe_device* device = NULL;
  lathe_kernel* kernel = NULL;
  lathe_kernel_info info = {.struct_size = sizeof info};
  const int bad = failed(lathe_device_open(&options, &device)) ||
                  failed(lathe_kernel_load_custom(device, &axpy, &kernel)) ||
                  failed(lathe_kernel_get_info(kernel, &info)) ||
                  failed(lathe_kernel_launch(kernel, arguments, 4, gpu.stream)) ||
                  !gpu_download(&gpu, y, arguments[0], sizeof y);
  if (!bad) {
    printf("%s, %s, %d registers%s: y[%d] = %g\n", info.name, info.compiler, info.registers,
           info.from_cache ? ", from the disk cache" : "", N - 1, y[N - 1]);
  }
  lathe_kernel_close(kernel);
  lathe_device_close(device);
  return bad;
}
