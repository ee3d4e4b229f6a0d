// Owns --profile: what each kind of step takes of a token.
#pragma once

#include "examples/decode/options.h"
#include "examples/decode/prompt.h"

namespace lathe::decode {

// Feeds the prompt and decodes what is likeliest after it, step by step, in a fresh session that
// times its steps; prints a row for each kind of step, the longest first.
Result<void> profile(Session& session, const Prompt& prompt, const Options& options);

}  // namespace lathe::decode
