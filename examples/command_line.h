// Owns what the programs share on their command lines: exit codes, Ctrl-C, the form of errors.
#pragma once

#include <string>
#include <string_view>

#include "lathe/library.h"

namespace lathe::command_line {

inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;
inline constexpr int kInterrupted = 130;  // what shells report for a program that Ctrl-C ended

// "decode 0.1.0", and what identifies the generated code.
std::string version(std::string_view program);

// Before anything else in main: descriptors 0 to 2 that the caller left closed become /dev/null, so
// that no file opened later takes their place and gets what is printed.
void open_standard_streams();
// From here on the first Ctrl-C is only noted, for interrupted(); the next one ends the program.
void note_interrupt();
bool interrupted();
// Text on stdout, at once. The error says why it did not get there.
Result<void> print(std::string_view text);
// A word on stderr. What stderr does not take is lost: that is no reason to end.
void say(std::string_view text);

// One sentence on stderr, its details indented below it.
void print_error(std::string_view program, const Error& error);
// The same for a command line that makes no sense, with a hint to --help.
void print_usage_error(std::string_view program, std::string_view message);

}  // namespace lathe::command_line
