// Owns where scratch buffers lie: buffers whose lifetimes do not meet share memory.
#include "plan/arena.h"

#include <algorithm>
#include <numeric>

namespace lathe {
namespace {

struct Placed {
  std::int64_t begin;
  std::int64_t end;
  int last;
};

// The lowest offset with `bytes` free among the placed buffers, which are sorted by offset.
std::int64_t lowest_gap(const std::vector<Placed>& live, std::int64_t bytes) {
  std::int64_t offset = 0;
  for (const Placed& placed : live) {
    if (placed.begin - offset >= bytes) break;
    offset = std::max(offset, placed.end);
  }
  return offset;
}

}  // namespace

ArenaLayout place_buffers(std::span<const Lifetime> buffers) {
  std::vector<std::size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return buffers[a].first < buffers[b].first;
  });

  ArenaLayout layout;
  layout.offsets.resize(buffers.size());
  std::vector<Placed> live;
  for (const std::size_t i : order) {
    const Lifetime& buffer = buffers[i];
    std::erase_if(live, [&](const Placed& placed) { return placed.last < buffer.first; });
    const std::int64_t bytes =
        (buffer.bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
    const std::int64_t offset = lowest_gap(live, bytes);
    const auto place = std::find_if(live.begin(), live.end(),
                                    [&](const Placed& placed) { return placed.begin > offset; });
    live.insert(place, {offset, offset + bytes, buffer.last});
    layout.offsets[i] = offset;
    layout.bytes = std::max(layout.bytes, offset + bytes);
  }
  return layout;
}

}  // namespace lathe
