// Owns the one list of kernels that tests run: the shapes per kernel type and format, the contents
// of every argument, and what counts as agreement with the oracle.
//
// The emulation tests, the GPU tests and the assembler tests all take their kernels from here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "lathe/codegen/kernel_table.h"
#include "lathe/codegen/sampling.h"

namespace lathe {

// How GoogleTest shows a parameter, and ctest the name of its test.
inline void PrintTo(const FormatRow& format, std::ostream* out) {
  *out << format.name;
}

namespace testing {

// What the input vectors hold beside random numbers.
enum class Values : std::uint8_t {
  random,
  large,              // magnitudes from 1e-30 to 1e30; for attention, scores to 50
  ties,               // few distinct values, zeros of both signs among them
  nan,                // some NaN and infinities
  negative_infinity,  // nothing else
  all_nan,
  outliers,  // one of 64 a thousand times as large, as some channels of models are
  faint,     // magnitudes about 1e-9
};

// A token of a batch.
struct BatchRow {
  int position = 0;
  int first_row = 0;  // of the caches, where its sequence has position 0
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
  int alias = -1;  // a parameter that is the same buffer as the output
  Sampling sampling = {};

  std::string text() const;
};

// One test per family.
struct Family {
  KernelType type;
  Format format;
  std::string name() const;  // "gemv_q4_k"

  friend void PrintTo(const Family& family, std::ostream* out) { *out << family.name(); }
};

// Every kernel type with every format that it covers.
std::vector<Family> families();
std::vector<KernelCase> kernel_cases(const Family& family);
// Whether the matrix units sum f16 products for this kernel, in an order that is theirs: then a
// GPU's bits are not the emulator's.
bool sums_in_hardware_order(const KernelKey& key);
// Few keys that differ most in the code they make, for tests that compile each.
std::vector<KernelKey> representative_keys(const Family& family);

using Bytes = std::vector<std::byte>;

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

// The oracle's outputs for these arguments, in place of them. Three parts, to test the shares.
void run_oracle(const KernelCase& kernel_case, std::vector<Bytes>& arguments);

// Gathers the outputs of all draws of a case, then says whether they agree.
class Comparison {
 public:
  explicit Comparison(const KernelCase& kernel_case) : case_(kernel_case) {}

  // Adds the output parameters of one draw.
  void add(std::span<const Bytes> expected, std::span<const Bytes> actual);
  // Empty, or what is wrong: the first element with another bit pattern (bound 0), an element that
  // was not written, or a relative L2 error above the row's bound.
  std::string problem() const;
  double worst_error() const;

 private:
  struct Sum {
    const char* what;
    double error = 0, norm = 0;
  };
  void add_appended(const Bytes& expected, const Bytes& actual);
  bool add_attended(const Param& param, const Bytes& expected, const Bytes& actual);
  void add_value(std::size_t sum, float expected, float actual, std::size_t at);

  KernelCase case_;
  std::vector<Sum> sums_ = {{"values"}, {"maxima"}, {"sums of weights"}, {"cache"}, {"operands"}};
  std::string first_problem_;
};

}  // namespace testing
}  // namespace lathe
