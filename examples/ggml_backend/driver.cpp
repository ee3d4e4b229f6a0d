// Owns the look-up of the driver.
#include "driver.h"

#include <dlfcn.h>

namespace lathe_ggml {
namespace {

bool load(Driver& driver) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return false;
#define LATHE_GGML_BIND(symbol, name, parameters)                                 \
  driver.name = reinterpret_cast<decltype(driver.name)>(dlsym(library, #symbol)); \
  if (!driver.name) return false;
  LATHE_GGML_DRIVER(LATHE_GGML_BIND)
#undef LATHE_GGML_BIND
  return driver.init(0) == 0 && driver.device_count(&driver.devices) == 0 && driver.devices > 0;
}

}  // namespace

const Driver* driver() {
  static Driver table;
  static const bool loaded = load(table);
  return loaded ? &table : nullptr;
}

}  // namespace lathe_ggml
