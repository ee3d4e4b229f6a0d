// Owns the way from what the user typed to the tokens to feed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "examples/decode/options.h"
#include "examples/decode/text/tokenizer.h"

namespace lathe::decode {

struct Prompt {
  std::vector<std::int32_t> ids;
  // Null if the file has no vocabulary; then only ids go in and out.
  std::unique_ptr<const text::Tokenizer> tokenizer;
};

// Reads stdin if the prompt is "-".
Result<Prompt> make_prompt(const GgufFile& file, const Options& options);

// Whether the model knows all of the ids, and its context holds them.
Result<void> check_prompt(const Prompt& prompt, const Plan& plan);

}  // namespace lathe::decode
