// Owns a kernel of the caller's own: its code, how it is launched, and its way to PTX.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lathe/codegen/emit.h"
#include "lathe/codegen/kernel_table.h"
#include "lathe/codegen/result.h"
#include "lathe/codegen/target.h"

namespace lathe {

enum class SourceLanguage : std::uint8_t { cuda, ptx };

struct CustomParam {
  std::string name;
  int alignment = 16;  // of a device pointer; 0: a value of at most 8 bytes, no pointer

  friend bool operator==(const CustomParam&, const CustomParam&) = default;
};

struct CustomKernel {
  std::string name;  // of the caller's choice; stands in errors
  SourceLanguage language = SourceLanguage::cuda;
  std::string source;
  std::string entry;  // the entry point: extern "C" in CUDA C++
  Geometry geometry;
  std::vector<CustomParam> params;

  friend bool operator==(const CustomKernel&, const CustomKernel&) = default;
};

// Ok, or a sentence that names the first member that makes no sense.
Result<void> check_custom_kernel(const CustomKernel& kernel);

// CUDA C++ goes through NVRTC as Lathe's own device code does: C++20, no CUDA headers, products and
// sums are not contracted (write fmaf), and a warning is an error with the detail "log". PTX is
// taken as it is. Route::nvrtc or Route::text.
Result<Ptx> emit_custom_kernel(const CustomKernel& kernel, const Target& target,
                               const Compilers& compilers);

}  // namespace lathe
