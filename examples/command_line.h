// Owns what the programs share on their command lines: exit codes, the form of errors, and the
// options that choose routes and compilers.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/library.h"

namespace lathe::command_line {

inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;

// "decode 0.1.0", and what identifies the generated code.
std::string version(std::string_view program);

// Before anything else in main: descriptors 0 to 2 that the caller left closed become /dev/null, so
// that no file opened later takes their place and gets what is printed.
void open_standard_streams();
// Text on stdout, at once. The error says why it did not get there.
Result<void> print(std::string_view text);
// A word on stderr. What stderr does not take is lost: that is no reason to end.
void say(std::string_view text);

// One sentence on stderr, its details indented below it.
void print_error(std::string_view program, const Error& error);
// The same for a command line that makes no sense, with a hint to --help.
void print_usage_error(std::string_view program, std::string_view message);

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
// --context and --kv.
void add_plan_options(CLI::App& app, PlanOptions& options);

}  // namespace lathe::command_line
