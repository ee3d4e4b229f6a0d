// Owns another program's benchmark: how it is asked, and how its answer is read.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/decode/test.h"
#include "lathe/codegen/result.h"

namespace lathe::bench {

// The command line with {model}, {gen}, {prompt}, {depth} and {reps} filled in; the model's path
// becomes one word of the shell.
std::string peer_command(std::string pattern, const std::string& model, const Test& test,
                         int repetitions);

// The tokens/s of each repetition, out of what a peer printed: a JSON array, or a JSON object a
// line, of records in llama-bench's form, of which that of the test counts; or lines
// "tokens/s: NUMBER". The error names what was expected.
Result<std::vector<double>> parse_peer_output(const std::string& text, const Test& test);

// Runs the command line and reads its answer.
Result<std::vector<double>> run_peer(const std::string& command_line, const Test& test,
                                     const std::function<void()>& waiting);

}  // namespace lathe::bench
