// Owns the C interface of liblathe_llvm.so, the only two symbols that library exports.
//
// Plain C structs, so that the plugin and the library may be built by different compilers.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

enum LatheLlvmArgumentKind {
  LATHE_LLVM_PARAMETER = 0,  // kernel parameter number `integer`
  LATHE_LLVM_NULL = 1,
  LATHE_LLVM_INTEGER = 2,
  LATHE_LLVM_REAL = 3,
};

struct LatheLlvmArgument {
  int kind;
  int integer;
  float real;
};

enum LatheLlvmParameterFlags {
  LATHE_LLVM_READONLY = 1,  // the kernel never writes through it
  LATHE_LLVM_NOALIAS = 2,   // nothing written overlaps it
};

struct LatheLlvmParameter {
  const char* name;
  int flags;
  int alignment;
};

struct LatheLlvmRequest {
  unsigned struct_size;
  const char* function;  // "gemv_q4_k": the op in the embedded bitcode
  const char* entry;     // name of the kernel to make
  const struct LatheLlvmParameter* parameters;
  int parameter_count;
  const struct LatheLlvmArgument* arguments;
  int argument_count;
  int threads;      // exactly, per block
  int resident;     // blocks for which a multiprocessor has registers, at least
  int compute;      // 90
  int accelerated;  // 1: sm_90a
  int ptx;          // 80: PTX 8.0
  int waits;        // 1: lets the kernels after be launched, and waits for those before, first
};

// Calls `reply(user, text, bytes)` once with the PTX and returns 0, or with the reason and returns
// another value. Thread-safe; takes no global state.
int lathe_llvm_emit(const struct LatheLlvmRequest* request,
                    void (*reply)(void* user, const char* text, unsigned long bytes), void* user);

// "LLVM 22.1.8"
const char* lathe_llvm_version(void);

#ifdef __cplusplus
}
#endif
