// Owns the scheduler of device threads and the waits of isa/host.h.
#include "emulation/emulator.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "emulation/fiber.h"
#include "emulation/op_registry.h"
#include "isa/host.h"

namespace lathe::emulation {

constinit thread_local DeviceThread* current = nullptr;

namespace {

enum class State : std::uint8_t { ready, exchange, warp, block, done };

// For each thread of a block: so many turns in which it only waited for a copy are a deadlock.
constexpr int kIdleTurns = 1000;
// A warp that looks for something in memory may ask all its lanes so many times in each turn.
constexpr int kExchangesOfAWait = 2;

constexpr int kTurnsOfOneSlowBlock = 2000;

struct Block;
struct Warp;

struct Thread : DeviceThread {
  Thread(Block& owner, int index);
  Block* block;
  Warp* warp = nullptr;
  State state = State::ready;
  int exchanges = 0;    // how many this thread has begun
  int since_pause = 0;  // those since it last waited for memory
  Fiber fiber;
};

struct Warp {
  std::vector<Thread*> lanes;
  int ready = 0;
  int at_exchange = 0, at_barrier = 0;
  // A lane can be one exchange ahead of the slowest, not two, so values live in two slots.
  unsigned values[2][32][8] = {};

  void release(State from) {
    for (Thread* lane : lanes) {
      if (lane->state != from) continue;
      lane->state = State::ready;
      ++ready;
    }
  }
};

struct AlignedFree {
  void operator()(unsigned char* p) const { ::operator delete[](p, std::align_val_t{16}); }
};

// The threads of one block; the next block and the next launch use them again.
struct Block {
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<Warp> warps;
  const std::function<void()>* body = nullptr;
  int done = 0;
  int at_barrier = 0;
  int active = 0;  // threads of this launch's blocks
  Warp* turn = nullptr;
  int own_idle = 0;
  int* idle = &own_idle;  // turns that ended in a wait for memory, since one last did not

  void prepare(int count) {
    while (static_cast<int>(threads.size()) < count)
      threads.push_back(std::make_unique<Thread>(*this, static_cast<int>(threads.size())));
    active = count;
    warps.assign(static_cast<std::size_t>(count / 32), {});
    for (int i = 0; i < count; ++i) {
      Thread& thread = *threads[static_cast<std::size_t>(i)];
      thread.warp = &warps[static_cast<std::size_t>(i / 32)];
      thread.warp->lanes.push_back(&thread);
    }
  }

  void begin(int x, int y, unsigned char* shared) {
    done = at_barrier = *idle = 0;
    turn = nullptr;
    for (int i = 0; i < active; ++i) {
      Thread& thread = *threads[static_cast<std::size_t>(i)];
      thread.block_x = x;
      thread.block_y = y;
      thread.shared = shared;
      thread.state = State::ready;
    }
    for (Warp& warp : warps) warp.ready = 32;
  }

  bool run(std::minstd_rand& random) {
    while (done < active)
      if (*idle > kIdleTurns * active || !take_turn(random)) return false;
    return true;
  }

  // A turn goes to a random warp, and within it to the lanes in a random order; a warp often keeps
  // its turn, so that it gets as far ahead of the others as the barriers allow. False when no warp
  // can go on.
  bool take_turn(std::minstd_rand& random) {
    if (!turn || turn->ready == 0 || random() % 4 == 0) turn = pick(random);
    if (!turn) return false;
    const unsigned start = random(), stride = random() | 1u;
    for (unsigned i = 0; i < 32; ++i) {
      Thread& thread = *turn->lanes[(start + i * stride) % 32];
      if (thread.state != State::ready) continue;
      current = &thread;
      thread.fiber.resume();
    }
    return true;
  }

  Warp* pick(std::minstd_rand& random) {
    const std::size_t start = random();
    for (std::size_t i = 0; i < warps.size(); ++i) {
      Warp& warp = warps[(start + i) % warps.size()];
      if (warp.ready > 0) return &warp;
    }
    return nullptr;
  }

  std::string states() const {
    int count[5] = {};
    for (int i = 0; i < active; ++i)
      ++count[static_cast<int>(threads[static_cast<std::size_t>(i)]->state)];
    return std::to_string(count[0]) + " threads wait for memory, " + std::to_string(count[1]) +
           " in a shuffle, " + std::to_string(count[2]) + " at a warp barrier, " +
           std::to_string(count[3]) + " at a block barrier, " + std::to_string(count[4]) +
           " have finished";
  }
};

void run_thread(void* argument) {
  Thread& thread = *static_cast<Thread*>(argument);
  (*thread.block->body)();
  thread.state = State::done;
  *thread.block->idle = 0;
  --thread.warp->ready;
  ++thread.block->done;
}

Thread::Thread(Block& owner, int index)
    : DeviceThread{.thread = index}, block(&owner), fiber(run_thread, this) {}

// Waits unless this thread is the last to come; the last one lets the others go.
void wait_in_warp(Thread& thread, State state, int Warp::*arrived) {
  Warp& warp = *thread.warp;
  if (state != State::exchange || ++thread.since_pause > kExchangesOfAWait) *thread.block->idle = 0;
  if (++(warp.*arrived) == 32) {
    warp.*arrived = 0;
    warp.release(state);
    return;
  }
  thread.state = state;
  --warp.ready;
  thread.fiber.pause();
}

Thread& running() {
  return *static_cast<Thread*>(current);
}

}  // namespace

void block_barrier() {
  Thread& thread = running();
  Block& block = *thread.block;
  *block.idle = 0;
  if (++block.at_barrier == block.active) {
    block.at_barrier = 0;
    for (Warp& warp : block.warps) warp.release(State::block);
    return;
  }
  thread.state = State::block;
  --thread.warp->ready;
  thread.fiber.pause();
}

void warp_barrier() {
  wait_in_warp(running(), State::warp, &Warp::at_barrier);
}

unsigned exchange(unsigned value, int lane) {
  Thread& thread = running();
  auto& values = thread.warp->values[thread.exchanges++ & 1];
  values[thread.thread & 31][0] = value;
  wait_in_warp(thread, State::exchange, &Warp::at_exchange);
  return values[lane & 31][0];
}

const unsigned (*gather(const unsigned* mine, int count))[8] {
  Thread& thread = running();
  auto& values = thread.warp->values[thread.exchanges++ & 1];
  std::copy_n(mine, count, values[thread.thread & 31]);
  wait_in_warp(thread, State::exchange, &Warp::at_exchange);
  return values;
}

void pause_for_memory() {
  Thread& thread = running();
  thread.since_pause = 0;
  ++*thread.block->idle;
  thread.fiber.pause();
}

namespace {
thread_local Prefetches counted;
// Where, how many bytes, and how often: a short stream is asked for a token and the next one.
thread_local std::map<std::pair<const void*, unsigned>, int> expected_copies;
}  // namespace

void prefetch(const void* global, unsigned bytes) {
  ++counted.asked;
  counted.sizes.insert(bytes);
  ++expected_copies[{global, bytes}];
}

void copy(const void* global, unsigned bytes) {
  if (expected_copies.empty()) return;
  const auto found = expected_copies.find({global, bytes});
  if (found == expected_copies.end()) return;
  ++counted.copied;
  if (--found->second == 0) expected_copies.erase(found);
}

const Prefetches& prefetches() {
  return counted;
}

namespace {

Result<void> check_threads(const std::string& name, const Geometry& geometry) {
  if (geometry.threads > 0 && geometry.threads <= 1024 && geometry.threads % 32 == 0) return {};
  return Error{Code::invalid_argument,
               name + ": a block of " + std::to_string(geometry.threads) +
                   " threads is not made of whole warps",
               {}};
}

using SharedMemory = std::unique_ptr<unsigned char[], AlignedFree>;
SharedMemory shared_memory_of(const Geometry& geometry) {
  SharedMemory shared(
      static_cast<unsigned char*>(::operator new[](geometry.shared_bytes, std::align_val_t{16})));
  std::memset(shared.get(), 0xff, geometry.shared_bytes);
  return shared;
}

std::minstd_rand generator(std::uint64_t seed) {
  return std::minstd_rand(static_cast<unsigned>(seed ^ seed >> 32));
}

Error stuck(const std::string& name, int x, int y, const Block& block, std::uint64_t seed) {
  return {Code::internal,
          name + ": divergent barrier or shuffle in block (" + std::to_string(x) + ", " +
              std::to_string(y) + "): " + block.states(),
          {{"seed", std::to_string(seed)}}};
}

}  // namespace

Result<void> launch(const std::string& name, const Geometry& geometry,
                    const std::function<void()>& body, std::uint64_t seed) {
  LATHE_TRY(check_threads(name, geometry));
  static thread_local std::unique_ptr<Block> block;
  if (!block) block = std::make_unique<Block>();
  block->prepare(static_cast<int>(geometry.threads));
  block->body = &body;
  const SharedMemory shared = shared_memory_of(geometry);
  std::minstd_rand random = generator(seed);
  std::vector<unsigned> order(std::size_t{geometry.grid_x} * geometry.grid_y);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), random);
  for (const unsigned at : order) {
    const int x = static_cast<int>(at % geometry.grid_x),
              y = static_cast<int>(at / geometry.grid_x);
    std::memset(shared.get(), 0xff, geometry.shared_bytes);
    block->begin(x, y, shared.get());
    if (block->run(random)) continue;
    Error error = stuck(name, x, y, *block, seed);
    block.reset();  // its fibers stand in the middle of their work
    return error;
  }
  return {};
}

Result<void> launch_together(const std::string& name, const Geometry& geometry,
                             const std::function<void()>& body, std::uint64_t seed,
                             unsigned held_back) {
  LATHE_TRY(check_threads(name, geometry));
  counted = {};
  expected_copies.clear();
  int idle = 0, running = 0;
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<SharedMemory> shared;
  for (unsigned y = 0; y < geometry.grid_y; ++y) {
    for (unsigned x = 0; x < geometry.grid_x; ++x) {
      Block& block = *blocks.emplace_back(std::make_unique<Block>());
      block.prepare(static_cast<int>(geometry.threads));
      block.body = &body;
      block.idle = &idle;
      block.begin(static_cast<int>(x), static_cast<int>(y),
                  shared.emplace_back(shared_memory_of(geometry)).get());
      running += block.active;
    }
  }
  std::minstd_rand random = generator(seed);
  std::vector<Block*> left;
  for (const auto& block : blocks) left.push_back(block.get());
  const Block* slow = nullptr;
  while (!left.empty()) {
    const std::size_t i = random() % left.size();
    Block& block = *left[i];
    if (held_back > 1) {
      if (random() % kTurnsOfOneSlowBlock == 0) slow = &block;
      if (&block == slow && random() % held_back != 0) continue;
    }
    if (!block.take_turn(random)) ++idle;
    if (block.done == block.active) left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
    if (idle > kIdleTurns * running) {
      const DeviceThread& first = *block.threads.front();
      return stuck(name, first.block_x, first.block_y, block, seed);
    }
  }
  return {};
}

Result<void> emulate(const KernelKey& key, std::span<void* const> arguments, std::uint64_t seed) {
  LATHE_TRY(check_key(key));
  const KernelRow& kernel = row(key.type);
  const OpCall call = kernel.call(key);
  LATHE_ASSIGN(const std::vector<OpValue> values, op_values(call, arguments));
  const HostOp& op = *find_host_op(call.function);
  return launch(
      key.text(), kernel.geometry(key), [&] { op.call(values.data()); }, seed);
}

}  // namespace lathe::emulation
