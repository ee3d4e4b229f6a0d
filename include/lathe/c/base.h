// Owns the rules of Lathe's C interface: status, last error, versions.
//
// What holds for every function, unless it says otherwise:
//
// Status.    Returns LATHE_OK or the number of an error. On an error no output is written, what was
//            open stays usable, and lathe_last_error() tells this thread more. Nothing is printed,
//            no exception leaves, no signal is raised.
// Handles.   lathe_key *, lathe_device * and so on are names of objects, not addresses. A function
//            that makes one writes it to its last argument; lathe_..._close gives it back. Closing
//            NULL does nothing. Handles may be closed in any order: an object keeps what it needs.
//            NULL, a closed handle and one of another kind are LATHE_INVALID_ARGUMENT.
// Structs.   The first member is struct_size, set by the caller to the size of the struct it was
//            compiled with. Members are only ever added at the end, and 0 means the default, so a
//            program and a library of different ages understand each other: a member that the other
//            side lacks is 0, or not written. An input with a member set that this library does not
//            know is LATHE_UNSUPPORTED.
// Strings.   End with a zero byte. Strings and arrays that Lathe returns belong to the handle they
//            were asked of and live until it is closed; those passed in are not kept.
// Numbers.   Enumerators are int32_t and keep their meaning; one that is unknown is
//            LATHE_INVALID_ARGUMENT.
// Threads.   Any thread may call any function; functions with the same handle at the same time
//            where that object's description allows it. Never close a handle while another thread
//            is inside a call with it.
// CUDA.      A function that talks to the GPU makes its context current and restores what was
//            current before. Needs no cuda.h: CUcontext is CUctx_st *, CUstream is CUstream_st *.
#ifndef LATHE_C_BASE_H
#define LATHE_C_BASE_H

#include <stddef.h>
#include <stdint.h>

// The version of this header; lathe_version() has the library's.
#define LATHE_VERSION_MAJOR 0
#define LATHE_VERSION_MINOR 1
#define LATHE_VERSION_PATCH 0
// The binary interface: the number in the name liblathe.so.N. It grows when a program that was
// compiled for an earlier one could go wrong.
#define LATHE_ABI_VERSION 0

#define LATHE_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t lathe_status;
enum {
  LATHE_OK = 0,
  LATHE_INVALID_ARGUMENT = 1,  // the caller's value is wrong; the message names it
  LATHE_UNSUPPORTED = 2,       // well formed, but nothing here covers it
  LATHE_NOT_FOUND = 3,         // a file, tensor, symbol or library is missing
  LATHE_CORRUPT_FILE = 4,      // a model file contradicts itself or its own size
  LATHE_IO = 5,                // the operating system refused a read, write or map
  LATHE_NO_DRIVER = 6,         // no usable NVIDIA driver or GPU on this machine
  LATHE_DRIVER = 7,            // a driver call failed
  LATHE_COMPILE = 8,           // a compiler or the assembler refused; detail "log" has its words
  LATHE_OUT_OF_MEMORY = 9,     // of the device or the host
  LATHE_OUT_OF_RANGE = 10,     // a position past the context, a token past the vocabulary
  LATHE_NOT_ELIGIBLE = 11,     // this way does not apply, take another; the message says why
  LATHE_INTERNAL = 12,         // a defect in Lathe
  LATHE_CANCELLED = 13         // the caller's lathe_cancel said so
};

// The last error of the calling thread.
typedef struct lathe_error {
  size_t struct_size;
  lathe_status status;
  int32_t driver_status;  // the driver's CUresult, where a driver call failed; else 0
  const char* message;    // one sentence that names the thing at fault
  const char* text;       // the message and all details, one a line
  const char* key;        // the kernel at fault, or NULL
  const char* hint;       // what would help, or NULL
  int32_t detail_count;
} lathe_error;

// Before the first error the status is LATHE_OK and the message empty. The strings live until the
// next call on this thread that fails. A success changes nothing.
LATHE_API lathe_status lathe_last_error(lathe_error* error);
// One of detail_count named facts: ("target", "sm_90a"), ("log", ...). Same life.
LATHE_API lathe_status lathe_last_error_detail(int32_t index, const char** name,
                                               const char** value);

// "out of memory": what a status means, in words. Never NULL. Lives for ever.
LATHE_API const char* lathe_status_text(lathe_status status);

// Of the library that is loaded: "0.1.0"; 100 for 0.1.0 (major * 10000 + minor * 100 + patch); its
// LATHE_ABI_VERSION. They cannot fail.
LATHE_API const char* lathe_version_text(void);
LATHE_API int32_t lathe_version(void);
LATHE_API int32_t lathe_abi_version(void);

// Told what a long operation is doing: ("uploading weights", 120, 470). On the thread that started
// the operation, before it returns. Must not call Lathe with the handle that is being made.
typedef void (*lathe_progress)(void* user, const char* what, int64_t done, int64_t total);
// Asked whether a long operation shall end early: not 0 is yes. On that thread too, again and
// again, and under the same rule.
typedef int32_t (*lathe_cancel)(void* user);

#ifdef __cplusplus
}
#endif

#endif  // LATHE_C_BASE_H
