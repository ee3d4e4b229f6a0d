// Owns the device code inside the library: the text of every file under ptx_templates.
#pragma once

#include <span>
#include <string_view>

namespace lathe {

struct SourceFile {
  std::string_view name;  // "ops/gemv.h", "ptx/rms_norm.ptx"
  std::string_view text;
};

std::span<const SourceFile> device_sources();
// Empty text when there is no such file.
std::string_view device_source(std::string_view name);

}  // namespace lathe
