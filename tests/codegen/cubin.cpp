// Owns the reading of a cubin's own facts, which are attributes in its section .nv.info.
#include <elf.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "tests/codegen/key_trial.h"

namespace lathe::testing {
namespace {

constexpr unsigned kHasBytes = 4;  // of a format: a length and so many bytes follow
constexpr unsigned kFrameSize = 0x11;

template <class T>
T read(std::string_view from, std::size_t at) {
  T value{};
  if (at + sizeof(T) <= from.size()) std::memcpy(&value, from.data() + at, sizeof(T));
  return value;
}

std::string_view part(std::string_view all, std::size_t at, std::size_t bytes) {
  return at < all.size() ? all.substr(at, bytes) : std::string_view();
}

std::string_view section(std::string_view elf, std::string_view name) {
  const auto header = read<Elf64_Ehdr>(elf, 0);
  const auto at = [&](std::size_t i) {
    return read<Elf64_Shdr>(elf, header.e_shoff + i * sizeof(Elf64_Shdr));
  };
  const Elf64_Shdr names = at(header.e_shstrndx);
  const std::string_view texts = part(elf, names.sh_offset, names.sh_size);
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr each = at(i);
    const std::string_view its = part(texts, each.sh_name, texts.size());
    if (its.substr(0, its.find('\0')) == name) return part(elf, each.sh_offset, each.sh_size);
  }
  return {};
}

}  // namespace

int cubin_stack_bytes(const std::vector<std::byte>& cubin) {
  const std::string_view info =
      section({reinterpret_cast<const char*>(cubin.data()), cubin.size()}, ".nv.info");
  int most = -1;
  for (std::size_t at = 0; at + 4 <= info.size();) {
    const auto format = static_cast<unsigned char>(info[at]);
    const auto attribute = static_cast<unsigned char>(info[at + 1]);
    // Of a function the symbol, then its bytes.
    if (format == kHasBytes && attribute == kFrameSize)
      most = std::max(most, read<std::int32_t>(info, at + 8));
    at += 4 + (format == kHasBytes ? read<std::uint16_t>(info, at + 2) : 0u);
  }
  return most;
}

}  // namespace lathe::testing
