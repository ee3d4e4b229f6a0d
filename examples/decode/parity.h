// Owns --parity: what a session computes beside what the oracles do.
#pragma once

#include <memory>

#include "examples/decode/options.h"
#include "examples/decode/prompt.h"

namespace lathe::decode {

// Takes the prompt's tokens through each layer by itself, from the oracles' hidden states, and
// through the whole model; prints how far the hidden states and the logits are from the oracles'.
// Whether all are within the bound of docs/accuracy.md.
Result<bool> is_on_par(const std::shared_ptr<const GgufFile>& file, const Prompt& prompt,
                       const Options& options);

}  // namespace lathe::decode
