// Owns products of many vectors with dense weights: y = x W^T with weights that come each time,
// that host memory keeps as floats, or that are resident on the device. docs/dense-products.md
// shows what is kept where.
//
// lathe/c/base.h has the rules of all functions. Hidden states are `batch` rows of n_in floats,
// results `batch` rows of n_out.
#ifndef LATHE_C_DENSE_H
#define LATHE_C_DENSE_H

#include "lathe/c/base.h"
#include "lathe/c/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

// Any number of threads at once: one product at a time, the others wait.
typedef struct lathe_dense lathe_dense;
// In host memory, the last 24 matrices that somebody used, as floats. Any number of threads at
// once. Products keep it open.
typedef struct lathe_dense_cache lathe_dense_cache;

enum {
  LATHE_PRECISION_FAITHFUL = 0,  // 22 bits of each number: 1e-6 of the result
  LATHE_PRECISION_HALF = 1,      // f16: 1e-3
  LATHE_PRECISION_BRAIN = 2,     // bf16: 4e-3
  LATHE_PRECISION_EIGHT = 3      // e4m3, a factor for each row: 0.13; from sm_89 on
};

typedef struct lathe_dense_options {
  size_t struct_size;
  int64_t budget_bytes;      // of device memory for what is resident; 0: 2 GiB
  int32_t precision;         // LATHE_PRECISION_...
  int32_t reserved;          // 0
  lathe_dense_cache* cache;  // of which products take weights, and where they leave them; NULL: one
                             // of their own
} lathe_dense_options;

// What a weight is found by. Made by lathe_dense_key_make() alone; a plain value.
typedef struct lathe_dense_key {
  uint64_t digest;
  int64_t bytes;
  int32_t format;
  int32_t n_in;
  int32_t n_out;
  int32_t reserved;
} lathe_dense_key;

typedef struct lathe_dense_source {
  lathe_dense_key key;
  const void* raw;  // key.bytes of them
} lathe_dense_source;

typedef struct lathe_dense_info {
  size_t struct_size;
  int32_t weights;  // resident
  int32_t blobs;
  int64_t bytes;  // that both take
  int64_t budget_bytes;
  int64_t products;      // so far
  int64_t uploads;       // of weights
  int64_t upload_bytes;  // as f32
  int64_t cached;        // weights that host memory keeps
} lathe_dense_info;

// FNV-1a of 64 bits over the bytes, then over the two sizes as one step each.
LATHE_API lathe_status lathe_weight_fingerprint(const void* raw, size_t bytes, uint64_t n_in,
                                                uint64_t n_out, uint64_t* fingerprint);
// Of n_out rows of n_in values in a format, such as "q4_k": hashes all bytes, so keep the key.
LATHE_API lathe_status lathe_dense_key_make(const void* raw, size_t bytes, const char* format,
                                            int32_t n_in, int32_t n_out, lathe_dense_key* key);

LATHE_API lathe_status lathe_dense_cache_open(lathe_dense_cache** cache);
LATHE_API lathe_status lathe_dense_cache_close(lathe_dense_cache* cache);
// Keeps a copy of key->n_out rows of key->n_in floats, which `count` must be, in place of what the
// key had. A weight that is not there takes the place of the one that was not used for longest.
LATHE_API lathe_status lathe_dense_cache_put(lathe_dense_cache* cache, const lathe_dense_key* key,
                                             const float* values, int64_t count);
// The same of key->bytes of any format, unless the weight is there. `raw` is what the key was made
// of: it is not hashed again.
LATHE_API lathe_status lathe_dense_cache_expand(lathe_dense_cache* cache,
                                                const lathe_dense_key* key, const void* raw);
// Copies all floats, which `count` must be; a use. LATHE_NOT_FOUND.
LATHE_API lathe_status lathe_dense_cache_read(lathe_dense_cache* cache, const lathe_dense_key* key,
                                              float* values, int64_t count);
// No use.
LATHE_API lathe_status lathe_dense_cache_contains(const lathe_dense_cache* cache,
                                                  const lathe_dense_key* key, int32_t* contained);
LATHE_API lathe_status lathe_dense_cache_get_size(const lathe_dense_cache* cache, int32_t* size);
LATHE_API lathe_status lathe_dense_cache_clear(lathe_dense_cache* cache);

// options may be NULL. LATHE_NOT_ELIGIBLE before sm_80.
LATHE_API lathe_status lathe_dense_open(lathe_device* device, const lathe_dense_options* options,
                                        lathe_dense** dense);
LATHE_API lathe_status lathe_dense_close(lathe_dense* dense);
LATHE_API lathe_status lathe_dense_get_info(const lathe_dense* dense, lathe_dense_info* info);

// With n_out rows of n_in floats, uploaded for this product alone.
LATHE_API lathe_status lathe_dense_batch_gemv(lathe_dense* dense, const float* hidden,
                                              int32_t batch, int32_t n_in, int32_t n_out,
                                              const float* weight, float* out);
// With a weight that is resident or kept; else it is expanded from `raw`, key->bytes of them, and
// kept. With raw NULL: LATHE_NOT_FOUND.
LATHE_API lathe_status lathe_dense_batch_gemv_cached(lathe_dense* dense, const lathe_dense_key* key,
                                                     const void* raw, const float* hidden,
                                                     int32_t batch, float* out);
// Makes weights resident until lathe_dense_clear(); *made is how many were not before. What the
// budget has no room for is left out.
LATHE_API lathe_status lathe_dense_preload(lathe_dense* dense, const lathe_dense_source* sources,
                                           int32_t source_count, int32_t* made);
// Bytes of the caller's, up to 256 MiB, under a number that is not 0; *made is 0 where they were
// resident before.
LATHE_API lathe_status lathe_dense_preload_blob(lathe_dense* dense, uint64_t number,
                                                const void* bytes, size_t size, int32_t* made);
LATHE_API lathe_status lathe_dense_get_blob(const lathe_dense* dense, uint64_t number,
                                            uint64_t* address);
LATHE_API lathe_status lathe_dense_is_resident(const lathe_dense* dense, const lathe_dense_key* key,
                                               int32_t* resident);
// Frees what is resident; host memory keeps what it has.
LATHE_API lathe_status lathe_dense_clear(lathe_dense* dense);

#ifdef __cplusplus
}
#endif

#endif  // LATHE_C_DENSE_H
