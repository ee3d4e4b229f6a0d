// Owns dlopen and dlsym.
#include "codegen/shared_library.h"

#include <dlfcn.h>

namespace lathe {

Result<std::shared_ptr<SharedLibrary>> SharedLibrary::open(std::span<const std::string> names) {
  std::string said;
  for (const std::string& name : names) {
    if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL))
      return std::shared_ptr<SharedLibrary>(new SharedLibrary(handle, name));
    const char* error = dlerror();
    said += (said.empty() ? "" : "; ") + std::string(error ? error : name + ": not loaded");
  }
  return Error{Code::not_found, "no library could be loaded: " + said, {}};
}

SharedLibrary::~SharedLibrary() {
  dlclose(handle_);
}

void* SharedLibrary::symbol(const char* name) const {
  return dlsym(handle_, name);
}

}  // namespace lathe
