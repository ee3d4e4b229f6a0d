// Owns the ranges that a profiler shows beside the GPU's work, by NVTX: building a kernel,
// launching it and decoding, named by key texts. Without a profiler a range costs a look at a null
// pointer; built without NVTX's headers it is nothing.
#pragma once

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define LATHE_HAS_NVTX 1
#endif

namespace lathe {

#ifdef LATHE_HAS_NVTX
// The ranges of Lathe's own. Made on the first call, which looks for a profiler: not on the hot
// path.
inline nvtxDomainHandle_t trace_domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("lathe");
  return domain;
}
#endif

// From its making to its end, on this thread. The name is read before the constructor returns.
class TraceRange {
 public:
#ifdef LATHE_HAS_NVTX
  explicit TraceRange(const char* name) {
    nvtxEventAttributes_t attributes = {};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name;
    nvtxDomainRangePushEx(trace_domain(), &attributes);
  }
  ~TraceRange() {
    nvtxDomainRangePop(trace_domain());
  }
#else
  explicit TraceRange(const char*) {}
#endif
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;
};

}  // namespace lathe
