// Owns writing a model into the other container.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lathe/codegen/result.h"
#include "lathe/plan/gguf.h"
#include "lathe/runtime/device.h"

namespace lathe {

struct ConvertOptions {
  // Of a P64 container: each layer's tensors begin at a multiple. A power of two from 256 to 2^30.
  std::uint32_t page_bytes = 16384;
  P64Weights weights = P64Weights::as_stored;
  Progress progress = {};                // told in bytes
  std::function<bool()> cancelled = {};  // asked while tensors are written: true ends it
};

// Writes a GGUF file's model to `path` as a P64 container, and a P64 container's as a GGUF file:
// the same metadata and tensors, byte for byte but for ConvertOptions::weights. The file is there
// whole or not at all; one that was there is replaced. unsupported: what the other container cannot
// hold, by name. corrupt_file: a tensor of the container has not the checksum it should, whatever
// the file was opened with. invalid_argument: weights that would replace none.
Result<void> convert_model(const GgufFile& file, const std::string& path,
                           const ConvertOptions& options = {});

}  // namespace lathe
