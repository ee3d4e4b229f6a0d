// Owns how finished tests are told: tables for people, CSV and JSON for programs.
#pragma once

#include <span>
#include <string>

#include "bench/decode/options.h"
#include "bench/decode/row.h"

namespace lathe::bench {

// A table of the tests and one of the sessions they ran on.
std::string markdown(std::span<const Row> rows);
// An array of one object a test. Its first fields are those of llama-bench, so that this program
// can be its own peer.
std::string json(std::span<const Row> rows);
// The fields of the JSON form, but for lists; what was not measured is empty.
std::string csv(std::span<const Row> rows);

std::string text(std::span<const Row> rows, Output form);

}  // namespace lathe::bench
