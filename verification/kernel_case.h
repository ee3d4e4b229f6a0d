// Owns what one run of a kernel is: its key, the values of what is no shape, and the contents of
// every argument. Tests, dump_ptx and bench_kernels all take their arguments from here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lathe/codegen/kernel_table.h"
#include "lathe/codegen/sampling.h"

namespace lathe::verification {

// What the input vectors hold beside random numbers.
enum class Values : std::uint8_t {
  random,
  large,  // magnitudes from 1e-30 to 1e30; for attention, scores to 50; for layer_norm, a mean of
          // 1000
  ties,   // few distinct values, zeros of both signs among them
  nan,    // some NaN and infinities
  negative_infinity,  // nothing else
  all_nan,
  masked,    // one of three -infinity
  outliers,  // one of 64 a thousand times as large, as some channels of models are
  faint,     // magnitudes about 1e-9
};

// A token of a batch.
struct BatchRow {
  int position = 0;
  int first_row = 0;  // of the caches, where its sequence has position 0; in pages, of the table
  Sampling sampling = {};
};

struct KernelCase {
  KernelKey key;
  int position = 0;                  // what the position parameter holds
  int capacity = 1;                  // positions that the KV caches hold
  std::int32_t token = 0;            // what the token parameter holds; of a chunk the first
  int count = 0;                     // tokens of the chunk, key.tokens at most
  int first_row = 0;                 // of the caches, where the chunk's sequence has its position 0
  std::vector<BatchRow> batch = {};  // in place of positions, where each token has a sequence
  Values values = Values::random;
  std::vector<std::int32_t> pages = {};  // of caches in pages: the table
  int alias = -1;                        // a parameter that is the same buffer as the output
  Sampling sampling = {};

  std::string text() const;
  // Where in the caches a sequence that begins at first_row has this position.
  std::int64_t place(int first_row, int position) const;
};

// A case for any valid key. Where the kernel looks at a position, it is this one; a chunk begins
// there, and each token of a batch has a sequence that ends there.
KernelCase case_at(const KernelKey& key, int position);

// The same case with caches in pages: those of each sequence anywhere and in any order, among pages
// and entries that nobody has. Sequences that only read have their first page in common.
KernelCase in_pages(KernelCase kernel_case, std::uint64_t seed);

// What the launch moves and does at least: the row's cost, for all positions that attention sees.
Cost cost_of(const KernelCase& kernel_case);

using Bytes = std::vector<std::byte>;

// Whether the numbers of an argument are f64.
bool is_f64(const Param& param);
// Bytes of one argument as the oracle takes it, times the capacity for a KV cache.
std::size_t argument_bytes(const KernelCase& kernel_case, const Param& param);
// The contents of every argument before the launch, as the oracle takes them. Outputs hold a NaN
// pattern; so does what a kernel must not read, such as KV cache entries outside the window.
std::vector<Bytes> make_arguments(const KernelCase& kernel_case, std::uint64_t seed);
// The same as the kernel takes them: blocks become tiles where it reads tiles.
std::vector<Bytes> device_arguments(const KernelCase& kernel_case, std::vector<Bytes> arguments);
// How many draws of inputs make one comparison. With very few outputs a sum that happens to cancel
// would make a relative error of any size, so those of several draws are taken together.
int draws(const KernelCase& kernel_case);

}  // namespace lathe::verification
