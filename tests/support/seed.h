// Owns the seed of a test whose inputs differ from run to run.
#pragma once

#include <cstdlib>

#include "verification/random.h"

namespace lathe::testing {

// LATHE_TEST_SEED, by which what a failure printed is run again; without it a fresh one.
inline std::uint64_t test_seed() {
  const char* set = std::getenv("LATHE_TEST_SEED");
  return set ? std::strtoull(set, nullptr, 10) : verification::fresh_seed();
}

}  // namespace lathe::testing
