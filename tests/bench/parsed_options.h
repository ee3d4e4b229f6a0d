// Owns the parsing of a benchmark's command line in tests.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace lathe::bench {

template <class Options>
struct ParsedOptions {
  std::optional<int> status;
  Options options;
  std::string said;  // on stderr
};

// `parse` is the program's parse_options().
template <class Options>
ParsedOptions<Options> parsed_options(std::optional<int> (*parse)(int, const char* const*,
                                                                  Options&),
                                      const char* program, std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), program);
  ParsedOptions<Options> parsed;
  ::testing::internal::CaptureStderr();
  parsed.status = parse(static_cast<int>(arguments.size()), arguments.data(), parsed.options);
  parsed.said = ::testing::internal::GetCapturedStderr();
  return parsed;
}

}  // namespace lathe::bench
