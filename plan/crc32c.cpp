// Owns CRC-32C, by the processor's instruction where it has one.
#include "plan/crc32c.h"

#include <array>
#include <cstring>

namespace lathe {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;

// tables[n][byte]: what `byte` leaves in the register after n more bytes of zero.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables = {};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t n = 1; n < tables.size(); ++n) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[n - 1][byte];
      tables[n][byte] = before >> 8 ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

std::uint32_t step(std::uint32_t crc, std::byte byte) {
  return crc >> 8 ^ kTables[0][(crc ^ static_cast<std::uint32_t>(byte)) & 0xff];
}

std::uint64_t word_at(const std::byte* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc32c_by_instruction(
    std::span<const std::byte> bytes) {
  std::uint64_t crc = 0xffffffff;
  while (bytes.size() >= 8) {
    crc = __builtin_ia32_crc32di(crc, word_at(bytes.data()));
    bytes = bytes.subspan(8);
  }
  auto low = static_cast<std::uint32_t>(crc);
  for (const std::byte byte : bytes)
    low = __builtin_ia32_crc32qi(low, static_cast<unsigned char>(byte));
  return ~low;
}
#endif

}  // namespace

std::uint32_t crc32c_by_tables(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xffffffff;
  while (bytes.size() >= 8) {
    const std::uint64_t word = word_at(bytes.data()) ^ crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) crc ^= kTables[7 - i][word >> 8 * i & 0xff];
    bytes = bytes.subspan(8);
  }
  for (const std::byte byte : bytes) crc = step(crc, byte);
  return ~crc;
}

std::uint32_t crc32c(std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return crc32c_by_instruction(bytes);
#endif
  return crc32c_by_tables(bytes);
}

}  // namespace lathe
