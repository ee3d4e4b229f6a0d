// Owns the slots behind the handles of the C interface.
#include "runtime/c_api/handle_table.h"

#include <array>
#include <atomic>
#include <mutex>
#include <vector>

namespace lathe::c_api {
namespace {

static_assert(sizeof(std::uintptr_t) == 8, "a handle is 44 bits of generation and 20 of index");
constexpr unsigned kIndexBits = 20;
constexpr std::size_t kChunk = 256;
constexpr std::size_t kChunks = (std::size_t{1} << kIndexBits) / kChunk;

struct Slot {
  std::atomic<std::uint64_t> stamp = 0;  // generation and kind of what is open here; 0: nothing
  std::uint64_t generation = 0;
  void* object = nullptr;
  Destroy destroy = nullptr;
};

// Chunks are never freed, so a slot's address stays good for whoever looks without a lock.
struct Table {
  std::mutex mutex;
  std::array<std::atomic<Slot*>, kChunks> chunks = {};
  std::vector<std::size_t> free;
  std::size_t slots = 0;
};

// Never destroyed: handles may be closed by destructors that run at the end of the process.
Table& table() {
  static Table& table = *new Table;
  return table;
}

std::uint64_t stamp_of(std::uint64_t generation, HandleKind kind) {
  return generation << 8 | static_cast<std::uint64_t>(kind);
}

Slot* slot_of(std::uintptr_t handle) {
  const std::size_t index = handle & ((std::uintptr_t{1} << kIndexBits) - 1);
  Slot* chunk = table().chunks[index / kChunk].load(std::memory_order_acquire);
  return chunk ? chunk + index % kChunk : nullptr;
}

}  // namespace

std::uintptr_t add_handle(HandleKind kind, void* object, Destroy destroy) {
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  if (t.free.empty()) {
    if (t.slots == kChunks * kChunk) return 0;
    t.free.reserve(t.slots + kChunk);  // so that closing never allocates
    t.chunks[t.slots / kChunk].store(new Slot[kChunk], std::memory_order_release);
    for (std::size_t i = kChunk; i-- > 0;) t.free.push_back(t.slots + i);
    t.slots += kChunk;
  }
  const std::size_t index = t.free.back();
  t.free.pop_back();
  Slot& slot = *slot_of(index);
  slot.object = object;
  slot.destroy = destroy;
  ++slot.generation;
  slot.stamp.store(stamp_of(slot.generation, kind), std::memory_order_release);
  return slot.generation << kIndexBits | index;
}

void* find_handle(HandleKind kind, std::uintptr_t handle) {
  const Slot* slot = slot_of(handle);
  if (!slot) return nullptr;
  const std::uint64_t stamp = stamp_of(handle >> kIndexBits, kind);
  return slot->stamp.load(std::memory_order_acquire) == stamp ? slot->object : nullptr;
}

bool close_handle(HandleKind kind, std::uintptr_t handle) {
  Slot* slot = slot_of(handle);
  if (!slot) return false;
  std::uint64_t stamp = stamp_of(handle >> kIndexBits, kind);
  // Of two threads that close it, one does.
  if (!slot->stamp.compare_exchange_strong(stamp, 0)) return false;
  slot->destroy(slot->object);
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  t.free.push_back(handle & ((std::uintptr_t{1} << kIndexBits) - 1));
  return true;
}

}  // namespace lathe::c_api
