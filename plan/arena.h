// Owns where scratch buffers lie: buffers whose lifetimes do not meet share memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lathe {

// Steps a buffer is needed in, from the one that first writes it to the last that reads it,
// inclusive: a step's inputs and outputs never share memory.
struct Lifetime {
  std::int64_t bytes = 0;
  int first = 0;
  int last = 0;
};

struct ArenaLayout {
  std::vector<std::int64_t> offsets;  // one per buffer, multiples of kArenaAlignment
  std::int64_t bytes = 0;             // of the whole arena
};

inline constexpr std::int64_t kArenaAlignment = 256;

// First fit in order of birth, so that equal layers get equal offsets.
ArenaLayout place_buffers(std::span<const Lifetime> buffers);

}  // namespace lathe
