// Owns what --explain prints: the choices of a session and their reasons.
#pragma once

#include <string>
#include <vector>

#include "examples/decode/options.h"
#include "lathe/library.h"

namespace lathe::decode {

// Of the session that these options would open; on the CPU where it would be opened there.
Result<std::vector<Selected>> explain_session(const GgufFile& file, const Options& options);

std::string choices_text(const std::vector<Selected>& choices);
std::string choices_json(const std::vector<Selected>& choices);

}  // namespace lathe::decode
