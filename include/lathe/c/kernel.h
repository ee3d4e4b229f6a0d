// Owns the kernel level of the C interface: name a kernel, read its PTX, load and launch it.
//
// lathe/c/base.h has the rules of all functions. A kernel is named by its key, such as
// "gemv.q4_k.k4096.n14336.w4": type, format, shape, tuning.
#ifndef LATHE_C_KERNEL_H
#define LATHE_C_KERNEL_H

#include "lathe/c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUctx_st;     // CUcontext is struct CUctx_st *
struct CUstream_st;  // CUstream is struct CUstream_st *

// A kernel's name, parsed. Never changes; any number of threads at once.
typedef struct lathe_key lathe_key;
// The compilers that make PTX, each loaded on first use. Any number of threads at once.
typedef struct lathe_compilers lathe_compilers;
// The PTX of one kernel. Never changes; any number of threads at once.
typedef struct lathe_ptx lathe_ptx;
// A GPU context as a place for kernels. Any number of threads at once.
typedef struct lathe_device lathe_device;
// A kernel loaded in a device. Never changes; any number of threads at once.
typedef struct lathe_kernel lathe_kernel;

// Ways from a key to PTX.
enum {
  LATHE_ROUTE_DEFAULT = 0,  // LLVM, NVRTC, text: the first that works
  LATHE_ROUTE_NVRTC = 1,    // CUDA C++ through libnvrtc
  LATHE_ROUTE_LLVM = 2,     // liblathe_llvm.so
  LATHE_ROUTE_TEXT = 3      // PTX templates: need no compiler, cover fewer keys
};

enum { LATHE_ACCESS_READ = 1, LATHE_ACCESS_WRITE = 2, LATHE_ACCESS_READ_WRITE = 3 };

enum {
  LATHE_ELEMENT_F32 = 0,
  LATHE_ELEMENT_I32 = 1,
  LATHE_ELEMENT_BLOCKS = 2,  // blocks of a format, as in a GGUF file; f16 or f64: of one value
  LATHE_ELEMENT_TILES = 3,   // what "retile" makes of blocks, and "gemm_operand" of rows
  LATHE_ELEMENT_KV = 4,      // entries of a KV cache
  LATHE_ELEMENT_F16 = 5      // operands of the kernel "matmul", in an order of their own
};

// Launch shape: one-dimensional blocks of `threads`.
typedef struct lathe_geometry {
  uint32_t grid_x;
  uint32_t grid_y;
  uint32_t threads;
  uint32_t shared_bytes;  // dynamic shared memory per block
} lathe_geometry;

typedef struct lathe_key_info {
  size_t struct_size;
  const char* text;     // the key in its one spelling
  const char* entry;    // its entry point's name in PTX
  const char* type;     // "gemv"
  const char* summary;  // what the type does, in one line
  lathe_geometry geometry;
  int32_t parameter_count;
  int32_t min_compute;    // first compute capability (90 = 9.0) that has its instructions; 0 = any
  int64_t bytes_read;     // that one launch must read at least; of attention, per cached position
  int64_t bytes_written;  // likewise
  int64_t operations;     // likewise
  double error_bound;     // relative L2 error allowed against double precision
} lathe_key_info;

// One device pointer. Shapes are in the code, so a kernel takes nothing else.
typedef struct lathe_parameter {
  size_t struct_size;
  const char* name;
  int64_t bytes;      // that the kernel may touch; of a KV cache, per cached position; of a table
                      // of its pages, per page of the sequences
  int32_t access;     // LATHE_ACCESS_...
  int32_t element;    // LATHE_ELEMENT_...
  int32_t alignment;  // of the address, in bytes
  int32_t per_position;  // 1: `bytes` counts per cached position
  int32_t may_alias;     // 1: may be the buffer of an output too; others are distinct from those
  int32_t scratch;       // 1: what it holds after the launch means nothing
  int32_t per_page;      // 1: `bytes` counts per page of 16 positions
  int32_t reserved;      // 0
} lathe_parameter;

// LATHE_INVALID_ARGUMENT names the part that does not parse, LATHE_UNSUPPORTED or the like why no
// such kernel can exist.
LATHE_API lathe_status lathe_key_parse(const char* text, lathe_key** key);
LATHE_API lathe_status lathe_key_close(lathe_key* key);
LATHE_API lathe_status lathe_key_get_info(const lathe_key* key, lathe_key_info* info);
// 0 <= index < parameter_count, in the order of a launch.
LATHE_API lathe_status lathe_key_get_parameter(const lathe_key* key, int32_t index,
                                               lathe_parameter* parameter);

typedef struct lathe_compiler_options {
  size_t struct_size;
  const char* nvrtc;  // path of libnvrtc; NULL: LATHE_NVRTC, else the usual names
  const char* llvm;   // path of liblathe_llvm.so; NULL: LATHE_LLVM, else the usual name
} lathe_compiler_options;

// options may be NULL. Loads nothing yet.
LATHE_API lathe_status lathe_compilers_open(const lathe_compiler_options* options,
                                            lathe_compilers** compilers);
LATHE_API lathe_status lathe_compilers_close(lathe_compilers* compilers);
// "LLVM 22.1.8": what a route would compile with, loading it; or why it cannot run here.
LATHE_API lathe_status lathe_compilers_get_version(lathe_compilers* compilers, int32_t route,
                                                   const char** version);

typedef struct lathe_ptx_info {
  size_t struct_size;
  const char* text;
  size_t text_bytes;     // without the zero at the end
  const char* entry;     // name of the entry point
  const char* target;    // "sm_90a"
  const char* compiler;  // "LLVM 22.1.8"
  lathe_geometry geometry;
  int32_t route;  // LATHE_ROUTE_...: which one it was
  double milliseconds;
} lathe_ptx_info;

// Makes PTX for a target such as "sm_80" or "sm_90a". No GPU, no driver. Refuses with a reason: the
// route does not cover the key or the target, its compiler is missing or has failed (detail "log").
LATHE_API lathe_status lathe_ptx_emit(lathe_compilers* compilers, const lathe_key* key,
                                      const char* target, int32_t route, lathe_ptx** ptx);
LATHE_API lathe_status lathe_ptx_close(lathe_ptx* ptx);
LATHE_API lathe_status lathe_ptx_get_info(const lathe_ptx* ptx, lathe_ptx_info* info);

// Where a device's sessions take memory from in place of the driver: a pair of functions for each
// kind, or NULL for the driver's own. They are called on threads that open and close devices and
// sessions, with the context current, must not call Lathe, and stay valid until the last of those
// is closed.
typedef struct lathe_memory_hooks {
  size_t struct_size;
  void* user;
  // An address aligned to 256 bytes; 0 where there is none, which is LATHE_OUT_OF_MEMORY.
  uint64_t (*allocate_device)(void* user, size_t bytes);
  void (*free_device)(void* user, uint64_t address);
  // Page-locked host memory that the device reads and writes at the same address, as
  // cuMemAllocHost gives; or NULL.
  void* (*allocate_pinned)(void* user, size_t bytes);
  void (*free_pinned)(void* user, void* address);
} lathe_memory_hooks;

enum {
  LATHE_LOG_WARNING = 1,  // something was done without: a route, the cache ...
  LATHE_LOG_INFO = 2      // a kernel was built, an entry was read ...
};
// Takes one event as one line without its end (docs/logging.md). On any thread, several at once,
// never while a token is decoded. Must not call Lathe with that device, nor throw.
typedef void (*lathe_log)(void* user, int32_t level, const char* line);

typedef struct lathe_device_options {
  size_t struct_size;
  int32_t device;               // ordinal, where no context is given
  struct CUctx_st* context;     // borrowed, must outlive the device; NULL: the primary context
  const int32_t* routes;        // LATHE_ROUTE_... in order of preference
  int32_t route_count;          // 0: the default order
  int32_t no_disk_cache;        // 1: neither read nor write it
  const char* cache_directory;  // NULL: LATHE_CACHE_DIR, XDG_CACHE_HOME/lathe, ~/.cache/lathe
  const char* nvrtc;            // as in lathe_compiler_options
  const char* llvm;
  const lathe_memory_hooks* memory;  // copied; NULL: the driver's memory
  lathe_log log;                     // NULL: LATHE_LOG, else nothing
  void* log_user;
  const char* dump_directory;  // for PTX and cubins of what is built; NULL: LATHE_DUMP
  int64_t cache_cap_bytes;     // 0: LATHE_CACHE_CAP, else 512 MiB
  int32_t cache_read_only;     // 1: takes what is there and writes nothing
  int32_t reserved;            // 0
} lathe_device_options;

typedef struct lathe_device_info {
  size_t struct_size;
  const char* description;  // "NVIDIA H200, sm_90a, driver 13.0"
  const char* target;       // "sm_90a"
  const char* assembler;    // "nvJitLink 13.0 (libnvJitLink.so.13)"
  int32_t kernels_built;
  int32_t kernels_from_disk;
  int32_t kernels_from_memory;  // asked for again
  int32_t note_count;           // what was passed over, and why
  // Entries of the disk cache since the device was opened; a warm kernel reads two.
  int64_t cache_hits;
  int64_t cache_misses;          // not there, or rejected
  int64_t cache_rejects;         // damaged, unreadable or not the user's alone
  int64_t cache_writes;          // written
  int64_t cache_write_failures;  // and not written: a full disk, no permission ...
  int64_t cache_evictions;       // removed to stay under the cap
  int32_t compute;               // compute capability times ten: 90
  int32_t multiprocessors;
  int32_t block_shared_bytes;           // shared memory that a block may ask for
  int32_t multiprocessor_shared_bytes;  // that the blocks of a multiprocessor share
  int64_t l2_bytes;
} lathe_device_info;

// options may be NULL. Loads the driver on the first call; LATHE_NO_DRIVER says what is missing.
LATHE_API lathe_status lathe_device_open(const lathe_device_options* options,
                                         lathe_device** device);
LATHE_API lathe_status lathe_device_close(lathe_device* device);
LATHE_API lathe_status lathe_device_get_info(lathe_device* device, lathe_device_info* info);
// 0 <= index < note_count of the last lathe_device_get_info().
LATHE_API lathe_status lathe_device_get_note(lathe_device* device, int32_t index,
                                             const char** note);

// Builds and loads many kernels, on all cores; lathe_kernel_load() then finds them. Waits for the
// end. progress may be NULL.
LATHE_API lathe_status lathe_device_prepare(lathe_device* device, const lathe_key* const* keys,
                                            int32_t key_count, lathe_progress progress, void* user);

// Builds and loads one kernel, from memory or the disk cache where it is there. Takes time: never
// on the hot path, never while a stream of the context is being captured.
LATHE_API lathe_status lathe_kernel_load(lathe_device* device, const lathe_key* key,
                                         lathe_kernel** kernel);

enum {
  LATHE_LANGUAGE_CUDA = 0,  // CUDA C++ for NVRTC
  LATHE_LANGUAGE_PTX = 1
};

typedef struct lathe_custom_parameter {
  const char* name;
  int32_t alignment;  // of a device pointer, in bytes; 0: a value of at most 8 bytes, no pointer
  int32_t reserved;   // 0
} lathe_custom_parameter;

// A kernel of the caller's own. docs/embedding.md says how CUDA C++ is compiled.
typedef struct lathe_custom_kernel {
  size_t struct_size;
  const char* name;  // of the caller's choice, one kernel each within a device
  const char* source;
  const char* entry;  // the entry point: extern "C" in CUDA C++
  int32_t language;   // LATHE_LANGUAGE_...
  int32_t parameter_count;
  const lathe_custom_parameter* parameters;
  lathe_geometry geometry;
} lathe_custom_kernel;

// Like lathe_kernel_load(), with the same caches. Given again, the same name with the same code is
// the same kernel, and with other code LATHE_INVALID_ARGUMENT.
LATHE_API lathe_status lathe_kernel_load_custom(lathe_device* device,
                                                const lathe_custom_kernel* custom,
                                                lathe_kernel** kernel);
// The code stays loaded while its device, or another kernel of it, is open.
LATHE_API lathe_status lathe_kernel_close(lathe_kernel* kernel);

typedef struct lathe_kernel_info {
  size_t struct_size;
  const char* name;      // the key's text, or a custom kernel's name
  const char* compiler;  // "LLVM 22.1.8"
  lathe_geometry geometry;
  int32_t parameter_count;
  int32_t route;         // LATHE_ROUTE_...
  int32_t from_cache;    // 1: the machine code came from the disk cache
  int32_t registers;     // per thread
  int32_t local_bytes;   // per thread: spills
  int32_t shared_bytes;  // static, per block
  int64_t cubin_bytes;
  // Milliseconds of the compiler, the assembler and the driver; 0 for what was not needed.
  double emit_ms;
  double assemble_ms;
  double load_ms;
} lathe_kernel_info;

LATHE_API lathe_status lathe_kernel_get_info(const lathe_kernel* kernel, lathe_kernel_info* info);

// Launches on the caller's stream (NULL: the legacy default stream), after what is on it. Returns
// at once. arguments[i] is the address, or the value, of parameter i; they are copied. The caller
// answers for buffers as large as the parameters say. LATHE_INVALID_ARGUMENT, and no launch, for a
// wrong count, a null or a misaligned pointer. Allocates nothing; may be captured into a graph.
LATHE_API lathe_status lathe_kernel_launch(const lathe_kernel* kernel, const uint64_t* arguments,
                                           int32_t argument_count, struct CUstream_st* stream);

#ifdef __cplusplus
}
#endif

#endif  // LATHE_C_KERNEL_H
