// Owns the device's view of a set of tokens: a bit for each, id i being bit i % 32 of word i / 32.
#pragma once

#include "isa/isa.h"

namespace lathe::dev {

// No set at all has every token.
LATHE_DEVICE bool is_allowed(const i32* allowed, int id) {
  return !allowed || (static_cast<u32>(allowed[id / 32]) >> (id % 32) & 1u);
}

}  // namespace lathe::dev
