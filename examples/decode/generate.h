// Owns the loop: feed the prompt, choose a token, feed it, until something ends it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "examples/decode/logits_record.h"
#include "lathe/library.h"

namespace lathe::decode {

enum class Ending { stop_token, max_tokens, context_full, interrupted };
const char* ending_name(Ending ending);

struct GenerateOptions {
  std::span<const std::int32_t> prompt;
  int max_tokens = -1;  // -1: until the context is full
  Sampling sampling;
  int ahead = 1;  // tokens to choose without the host; more than 1 leaves no logits to record
  std::function<bool(std::int32_t)> is_stop;
  std::vector<std::int32_t> stops;  // of them, those at which the device can end by itself
  std::function<Result<void>(std::int32_t)> on_token;  // not called for a stop token
  std::function<bool()> interrupted;
  Progress progress;
};

struct Generation {
  std::vector<std::int32_t> ids;  // without the stop token
  Ending ending = Ending::max_tokens;
  int prompt_fed = 0;
  double prompt_seconds = 0;  // until the first token was chosen
  // The steps after that: each feeds the last token and chooses the next.
  int steps = 0;                // with `ahead`, some may lie beyond the end of the answer
  double step_seconds = 0;      // wall time, less what the record of the logits took
  std::int64_t bytes_read = 0;  // weights and KV entries that those steps had to read
};

// The session must be fresh. The record gets the logits of every position for its file, and for its
// hash those from which a token was chosen; nothing with `ahead`.
Result<Generation> generate(Session& session, const GenerateOptions& options, LogitsRecord& record);

}  // namespace lathe::decode
