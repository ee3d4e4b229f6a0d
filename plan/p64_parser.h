// Owns the walk over a P64 container: sections, tensors, checksums, and every check on them.
#pragma once

#include <cstddef>
#include <span>

#include "lathe/codegen/result.h"
#include "lathe/plan/gguf.h"
#include "plan/gguf_parser.h"

namespace lathe {

// Whether the bytes begin as a P64 container does.
bool is_p64(std::span<const std::byte> bytes);

Result<GgufContents> parse_p64(std::span<const std::byte> bytes, Integrity integrity);

}  // namespace lathe
