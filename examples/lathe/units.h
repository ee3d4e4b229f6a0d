// Owns how amounts and times are written for people.
#pragma once

#include <cstdint>
#include <string>

namespace lathe::tool {

std::string size_text(std::int64_t bytes);                                      // "1.5 MiB"
std::string count_text(std::int64_t count, const char* one, const char* many);  // "1 entry"
// Seconds since 1970, as "5 min ago".
std::string age_text(std::int64_t time);

}  // namespace lathe::tool
