// Owns how a finished run is told: one line for people, one JSON object for programs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "examples/decode/generate.h"
#include "examples/decode/options.h"
#include "lathe/library.h"

namespace lathe::decode {

struct Summary {
  std::string model;  // path
  std::span<const std::int32_t> prompt;
  std::string text;  // empty without a tokenizer
  Generation generation;
  std::optional<std::uint64_t> logits_hash;  // none if the logits stayed on the device
  double open_seconds = 0;                   // kernels and weights
  double first_token_seconds = 0;            // from the start of the program
  double read_rate = 0;                      // bytes per second that the card reaches; 0 on the CPU
  SessionReport report;
  std::vector<std::string> notes;
};

std::string line(const Summary& summary);
std::string json(const Summary& summary);

}  // namespace lathe::decode
