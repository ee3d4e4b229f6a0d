// Owns a library loaded at run time: found by a list of names, closed when the last user is gone.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "lathe/codegen/result.h"

namespace lathe {

class SharedLibrary {
 public:
  // The first of `names` that loads. The error lists what the dynamic linker said of each.
  static Result<std::shared_ptr<SharedLibrary>> open(std::span<const std::string> names);
  ~SharedLibrary();
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;

  const std::string& name() const { return name_; }
  // nullptr when the library has no such symbol.
  void* symbol(const char* name) const;
  // Sets a function pointer; the error names library and symbol.
  template <typename Function>
  Result<void> bind(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(symbol(name));
    if (function) return {};
    return Error{Code::not_found, name_ + " has no symbol " + name, {}};
  }

 private:
  SharedLibrary(void* handle, std::string name) : handle_(handle), name_(std::move(name)) {}
  void* handle_;
  std::string name_;
};

}  // namespace lathe
