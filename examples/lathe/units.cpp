// Owns the choice of units.
#include "examples/lathe/units.h"

#include <fmt/format.h>

#include <array>
#include <ctime>

namespace lathe::tool {

std::string size_text(std::int64_t bytes) {
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  double amount = double(bytes) / 1024;
  std::size_t unit = 0;
  for (; amount >= 1024 && unit + 1 < kUnits.size(); ++unit) amount /= 1024;
  return fmt::format("{:.1f} {}", amount, kUnits[unit]);
}

std::string count_text(std::int64_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string age_text(std::int64_t time) {
  const std::int64_t seconds = std::int64_t(std::time(nullptr)) - time;
  if (seconds < 60) return fmt::format("{} s ago", seconds < 0 ? 0 : seconds);
  if (seconds < 3600) return fmt::format("{} min ago", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{} h ago", seconds / 3600);
  return fmt::format("{} days ago", seconds / 86400);
}

}  // namespace lathe::tool
