// Owns the emulation of a GPU on the host: runs a kernel of the table, or any function written
// against isa/isa.h, as a grid of blocks of device threads.
//
// Blocks run one after another, in an order drawn from the seed, unless they are launched together;
// the threads of a block are fibers that take turns in such an order. Shared memory is filled with
// NaN and exactly as large as the launch says. Threads: launches may run on several operating
// system threads at once.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>

#include "lathe/codegen/kernel_table.h"

namespace lathe::emulation {

// Runs the kernel of `key` on host pointers in the order of its params().
Result<void> emulate(const KernelKey& key, std::span<void* const> arguments, std::uint64_t seed);

// Runs `body` once per thread of the grid. `name` stands in errors. Fails, with the states of the
// threads, when some wait at a barrier or shuffle that the others never reach.
Result<void> launch(const std::string& name, const Geometry& geometry,
                    const std::function<void()>& body, std::uint64_t seed);

// The same for a kernel whose blocks wait for one another: all run at the same time, and take turns
// in an order drawn from the seed. One block, now this one and now that, gets only one of
// `held_back` turns that are drawn for it.
Result<void> launch_together(const std::string& name, const Geometry& geometry,
                             const std::function<void()>& body, std::uint64_t seed,
                             unsigned held_back = 1);

// Bulk prefetches of this operating system thread's last launch_together(): how many, how many of
// them a bulk copy of the same bytes followed, by whichever thread, and of how many bytes they
// were.
struct Prefetches {
  std::uint64_t asked = 0, copied = 0;
  std::set<unsigned> sizes;
};
const Prefetches& prefetches();

}  // namespace lathe::emulation
