// Owns a shared library opened at run time.
#pragma once

#include <dlfcn.h>
#include <link.h>

#include <span>
#include <string>
#include <utility>

#include "lathe/codegen/result.h"

namespace lathe {

class DynamicLibrary {
 public:
  // Opens the first of `names` that the dynamic linker finds; the error quotes what it said of
  // each.
  static Result<DynamicLibrary> open(std::span<const std::string> names) {
    std::string reason;
    for (const std::string& name : names) {
      // Local: the library's symbols must not satisfy anybody else's references.
      if (void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        return DynamicLibrary(handle, name);
      }
      const char* words = ::dlerror();
      reason += (reason.empty() ? "" : "; ") + std::string(words ? words : name + ": not loaded");
    }
    return Error{Code::not_found, reason, {}};
  }

  DynamicLibrary(DynamicLibrary&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)),
        name_(std::move(other.name_)),
        path_(std::move(other.path_)) {}
  DynamicLibrary& operator=(DynamicLibrary&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(name_, other.name_);
    std::swap(path_, other.path_);
    return *this;
  }
  ~DynamicLibrary() {
    if (handle_) ::dlclose(handle_);
  }

  const std::string& name() const { return name_; }
  // The file that the dynamic linker found for the name.
  const std::string& path() const { return path_; }
  void* symbol(const char* name) const { return ::dlsym(handle_, name); }
  template <typename Function>
  bool bind(Function*& out, const char* name) const {
    out = reinterpret_cast<Function*>(symbol(name));
    return out != nullptr;
  }
  // Keeps the library loaded for the life of the process.
  void leak() { handle_ = nullptr; }

 private:
  DynamicLibrary(void* handle, std::string name) : handle_(handle), name_(std::move(name)) {
    const link_map* loaded = nullptr;
    if (::dlinfo(handle, RTLD_DI_LINKMAP, &loaded) == 0 && loaded) path_ = loaded->l_name;
  }

  void* handle_ = nullptr;
  std::string name_;
  std::string path_;
};

}  // namespace lathe
