// Owns CRC-32C, the checksum of P64 containers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lathe {

// Castagnoli's polynomial, bits reflected; the register begins and ends inverted.
std::uint32_t crc32c(std::span<const std::byte> bytes);
// By tables alone: what a processor without the instruction computes, and tests compare with.
std::uint32_t crc32c_by_tables(std::span<const std::byte> bytes);

}  // namespace lathe
