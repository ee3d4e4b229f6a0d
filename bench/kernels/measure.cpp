// Owns the number of turns, and contents that are as good as a whole matrix of random numbers.
#include "bench/kernels/measure.h"

#include <algorithm>

namespace lathe::bench::kernels {

namespace {

using verification::Bytes;
using verification::KernelCase;

constexpr std::int64_t kCacheTimes = 3;
// Of all turns together, so that filling them takes no longer than measuring.
constexpr std::int64_t kMostBytes = std::int64_t{2} << 30;
// Rows of a matrix that are drawn at random; the others repeat them.
constexpr int kDrawnRows = 256;
constexpr std::uint64_t kSeed = 1;

KernelCase with_few_rows(KernelCase kernel_case) {
  // Whose operands end with something else than they begin with.
  if (kernel_case.key.type == KernelType::gemm) return kernel_case;
  for (int* rows : {&kernel_case.key.n, &kernel_case.key.n_b, &kernel_case.key.n_c})
    *rows = std::min(*rows, kDrawnRows);
  kernel_case.token = std::min(kernel_case.token, kernel_case.key.n / 2);
  return kernel_case;
}

bool takes_turns(const Param& param) {
  return param.element == Element::blocks || param.element == Element::tiles ||
         param.element == Element::kv;
}

std::int64_t device_bytes(const KernelCase& kernel_case, const Param& param) {
  if (param.per_page) return param.bytes * std::ssize(kernel_case.pages);
  return param.bytes * (param.per_position ? kernel_case.capacity : 1);
}

Bytes repeated(const Bytes& pattern, std::int64_t bytes) {
  Bytes out(static_cast<std::size_t>(bytes));
  for (std::size_t at = 0; at < out.size(); at += pattern.size())
    std::copy_n(pattern.begin(), std::min(pattern.size(), out.size() - at),
                out.begin() + static_cast<std::ptrdiff_t>(at));
  return out;
}

}  // namespace

Result<Arguments> Arguments::make(Workbench& bench, const KernelCase& kernel_case, int launches) {
  const std::vector<Param> params = row(kernel_case.key.type).params(kernel_case.key);
  std::int64_t turn_bytes = 0;
  for (const Param& param : params)
    if (takes_turns(param)) turn_bytes += device_bytes(kernel_case, param);
  const std::int64_t passing = std::max<std::int64_t>(1, cost_of(kernel_case).bytes_read);
  const std::int64_t wanted =
      turn_bytes == 0
          ? 1
          : std::min<std::int64_t>(launches, kCacheTimes * bench.cache_bytes() / passing + 2);
  LATHE_ASSIGN(const std::int64_t free, bench.free_bytes());
  const std::int64_t turns = std::clamp<std::int64_t>(
      std::min(free / 4, kMostBytes) / std::max<std::int64_t>(1, turn_bytes), 1, wanted);

  Arguments out;
  out.launches_ = turns < wanted ? static_cast<int>(turns) : launches;
  out.turns_.resize(static_cast<std::size_t>(turns));
  const KernelCase few = with_few_rows(kernel_case);
  std::vector<Bytes> drawn = device_arguments(few, make_arguments(few, kSeed));
  for (std::size_t i = 0; i < params.size(); ++i) {
    const std::int64_t bytes = device_bytes(kernel_case, params[i]);
    const Bytes contents = repeated(drawn[i], bytes);
    std::uint64_t address = 0;
    for (std::size_t turn = 0; turn < out.turns_.size(); ++turn) {
      if (turn == 0 || takes_turns(params[i])) {
        LATHE_ASSIGN(address, bench.allocate(bytes));
        LATHE_TRY(bench.write(address, contents));
      }
      out.turns_[turn].push_back(address);
    }
  }
  return out;
}

Result<std::vector<double>> measure(Workbench& bench, const Kernel& kernel,
                                    const KernelCase& kernel_case, const Repetitions& repetitions) {
  LATHE_ASSIGN(const Arguments arguments,
               Arguments::make(bench, kernel_case, repetitions.launches));
  std::vector<double> seconds;
  for (int i = -1; i < repetitions.count; ++i) {
    LATHE_ASSIGN(const double taken, bench.time(kernel, arguments.turns(), arguments.launches()));
    if (i >= 0) seconds.push_back(taken);
  }
  return seconds;
}

}  // namespace lathe::bench::kernels
