// Owns the reading of the recorded tables' texts, which are hexadecimal because some of them aren't
// UTF-8.
#pragma once

#include <string>

namespace lathe::text {

inline std::string from_hex(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return out;
}

}  // namespace lathe::text
