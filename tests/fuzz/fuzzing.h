// Owns what the fuzzers share: values drawn from the input, and the end of a run that found a
// defect.
#pragma once

#include <fuzzer/FuzzedDataProvider.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lathe::fuzz {

// Ends the run where something holds that must not: libFuzzer then keeps the input.
inline void require(bool holds) {
  if (!holds) __builtin_trap();
}

// A result's sentence must be there and be one.
template <typename Result>
void require_clear(const Result& result) {
  if (!result) require(!result.error().message.empty());
}

}  // namespace lathe::fuzz
