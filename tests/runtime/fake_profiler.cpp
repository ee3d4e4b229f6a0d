// Stands in for a profiler's injection library: keeps what NVTX tells it of Lathe's ranges.
#include <nvtx3/nvToolsExt.h>

#include <mutex>
#include <string>

namespace {

// Kernels are built on several threads.
struct Seen {
  std::mutex mutex;
  std::string text;  // "open session{", "}" ...: ranges in order, those of a thread nested
};
Seen g_seen;
thread_local int t_depth = 0;

void add(const std::string& text) {
  const std::lock_guard lock(g_seen.mutex);
  g_seen.text += text;
}

nvtxDomainHandle_t create(const char* name) {
  return std::string(name) == "lathe" ? reinterpret_cast<nvtxDomainHandle_t>(&g_seen) : nullptr;
}
int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  if (!domain) return 0;
  add(std::string(attributes->message.ascii) + "{");
  return t_depth++;
}
int pop(nvtxDomainHandle_t domain) {
  if (!domain) return 0;
  add("}");
  return --t_depth;
}

template <typename Function>
void take(NvtxFunctionTable table, int index, Function* function) {
  *table[index] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size))
    return 0;
  if (size <= NVTX_CBID_CORE2_DomainRangePop) return 0;
  take(table, NVTX_CBID_CORE2_DomainCreateA, create);
  take(table, NVTX_CBID_CORE2_DomainRangePushEx, push);
  take(table, NVTX_CBID_CORE2_DomainRangePop, pop);
  return 1;
}

extern "C" __attribute__((visibility("default"))) const char* lathe_seen_ranges() {
  return g_seen.text.c_str();
}
