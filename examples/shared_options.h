// Owns the parsing of command lines, and the options that mean the same in all programs.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "lathe/library.h"

namespace lathe::command_line {

// Parses, with help in the form that all programs have. The exit code to end with after --help,
// --version or a usage error; nothing to go on.
std::optional<int> parse(CLI::App& app, int argc, const char* const* argv);

// Takes the value, or ends the parsing with the error's sentence.
template <typename T>
T value_or_usage_error(const char* option, Result<T> result) {
  if (!result) throw CLI::ValidationError(option, result.error().message);
  return std::move(result).value();
}

// --route, repeatable or as a list.
void add_route_option(CLI::App& app, std::vector<Route>& routes);
// --nvrtc and --llvm, with the environment variables LATHE_NVRTC and LATHE_LLVM.
void add_compiler_options(CLI::App& app, CompilerPaths& paths);
// --chunk.
void add_chunk_option(CLI::App& app, int& chunk);
// --context, --kv, --fusion and --chunk.
void add_plan_options(CLI::App& app, PlanOptions& options);
// --threads.
void add_threads_option(CLI::App& app, int& threads);
// --no-cache and --cache-dir.
void add_cache_options(CLI::App& app, SessionOptions& options);

}  // namespace lathe::command_line
