// Owns reading one metadata value of a GGUF file.
#pragma once

#include <string>

#include "lathe/codegen/result.h"
#include "lathe/plan/gguf.h"
#include "plan/byte_cursor.h"

namespace lathe {

// The type and the value behind a key. `what` names the value in errors.
Result<GgufValue> read_gguf_value(ByteCursor& cursor, const std::string& what);

}  // namespace lathe
