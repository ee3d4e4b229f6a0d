// Owns the step from PTX to a cubin: libnvJitLink where it is found, else the driver's own.
//
// Threads: assemble() may be called from any number of threads at once.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/codegen/result.h"
#include "lathe/codegen/target.h"
#include "runtime/context.h"

namespace lathe {

using Cubin = std::vector<std::byte>;

class Assembler {
 public:
  virtual ~Assembler() = default;
  // "nvJitLink 13.0 (libnvJitLink.so.13)": name and version, part of every cache key.
  virtual const std::string& name() const = 0;
  // The file its library was loaded from; empty for the driver's.
  virtual std::string library() const { return {}; }
  // The error has details "log" (the assembler's words) and "ptx" (the lines it points at).
  virtual Result<Cubin> assemble(std::string_view ptx, const Target& target) const = 0;
};

// `path` empty: the usual names through the dynamic linker.
Result<std::unique_ptr<Assembler>> open_nvjitlink(const std::string& path);
// The driver's assembler; `context` must outlive it.
std::unique_ptr<Assembler> driver_assembler(const Context& context);

// nvJitLink unless `path` is "off", it is missing, it does not know the device's target, or its
// cubins are of a later CUDA generation than the driver; why it was passed over goes to `notes`.
// A path that names no usable library is an error.
Result<std::unique_ptr<Assembler>> choose_assembler(const Context& context, const std::string& path,
                                                    std::vector<std::string>& notes);

// An error of Code::compile about PTX, with the log and the lines of PTX that it names.
Error assembly_error(std::string_view assembler, std::string_view log, std::string_view ptx);

}  // namespace lathe
