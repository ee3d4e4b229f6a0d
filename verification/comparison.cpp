// Owns what counts as agreement with the oracle.
#include <bit>
#include <cmath>
#include <cstring>
#include <thread>

#include "verification/atom_choices.h"
#include "verification/comparison.h"

namespace lathe::verification {
namespace {

template <typename T>
T load(const Bytes& bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

std::string scientific(double value) {
  char text[16];
  std::snprintf(text, sizeof text, "%.3e", value);
  return text;
}

std::string hex(std::uint32_t bits) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", bits);
  return text;
}

}  // namespace

void run_oracle(const KernelCase& kernel_case, std::vector<Bytes>& arguments, int threads) {
  std::vector<void*> pointers;
  for (Bytes& bytes : arguments) pointers.push_back(bytes.data());
  const auto share = [&](int part, int parts) {
    row(kernel_case.key.type).oracle(kernel_case.key, pointers, part, parts);
  };
  if (threads > 1) {
    std::vector<std::jthread> running;
    for (int part = 0; part < threads; ++part) running.emplace_back(share, part, threads);
    return;
  }
  constexpr int kParts = 3;
  for (int part : {2, 0, 1}) share(part, kParts);
}

void Comparison::add(std::span<const Bytes> expected, std::span<const Bytes> actual) {
  const KernelRow& kernel = row(case_.key.type);
  const std::vector<Param> params = kernel.params(case_.key);
  const auto stride = static_cast<std::size_t>(case_.key.head_dim + 2);
  if (case_.key.type == KernelType::kv_append && case_.key.atoms > 0) {
    if (first_problem_.empty()) first_problem_ = atoms_problem(case_, expected, actual);
    return;
  }
  for (std::size_t p = 0; p < params.size(); ++p) {
    if (params[p].access == Access::read || params[p].scratch) continue;
    if (params[p].element == Element::f16) {
      for (std::size_t i = 0; i < expected[p].size() / 2; ++i)
        add_half(f16_to_f32(load<std::uint16_t>(expected[p], i)),
                 f16_to_f32(load<std::uint16_t>(actual[p], i)), i);
      continue;
    }
    if (case_.key.type == KernelType::append_tokens && params[p].element == Element::kv) {
      add_appended(expected[p], actual[p]);
      continue;
    }
    const bool counts = params[p].element == Element::i32;
    if ((counts || case_.key.type == KernelType::attend) &&
        add_attended(params[p], expected[p], actual[p]))
      continue;
    if (kernel.bound == 0) {
      if (expected[p] == actual[p] || !first_problem_.empty()) continue;
      std::size_t at = 0;
      while (expected[p][at] == actual[p][at]) ++at;
      at = std::min(at / 4 * 4, expected[p].size() - 4);
      first_problem_ = std::string(params[p].name) + " at byte " + std::to_string(at) + ": " +
                       hex(load<std::uint32_t>(actual[p], at / 4)) + ", should be " +
                       hex(load<std::uint32_t>(expected[p], at / 4));
      continue;
    }
    if (is_f64(params[p])) {
      for (std::size_t i = 0; i < expected[p].size() / 8; ++i)
        add_value(0, load<double>(expected[p], i), load<double>(actual[p], i), i);
      continue;
    }
    for (std::size_t i = 0; i < expected[p].size() / 4; ++i) {
      std::size_t sum = 0;
      if (case_.key.type == KernelType::attention && i % stride >= stride - 2)
        sum = 1 + i % stride - (stride - 2);
      add_value(sum, load<float>(expected[p], i), load<float>(actual[p], i), i);
    }
  }
}

// KV caches and counters: bits, but for the numbers in a cache of f32. There may be NaN, which must
// not have changed. False for other parameters.
bool Comparison::add_attended(const Param& param, const Bytes& expected, const Bytes& actual) {
  if (param.element != Element::kv && param.element != Element::i32) return false;
  const bool numbers = param.element == Element::kv && case_.key.format == Format::f32;
  for (std::size_t i = 0; i < expected.size() / 4; ++i) {
    const auto should = load<std::uint32_t>(expected, i), is = load<std::uint32_t>(actual, i);
    if (numbers && std::isfinite(load<float>(expected, i))) {
      add_value(3, load<float>(expected, i), load<float>(actual, i), i);
    } else if (should != is && first_problem_.empty()) {
      first_problem_ = std::string(param.name) + " at byte " + std::to_string(4 * i) + ": " +
                       hex(is) + ", should be " + hex(should);
    }
  }
  return true;
}

// The numbers of a cache, position by position; what nobody appended is the NaN it was.
void Comparison::add_appended(const Bytes& expected, const Bytes& actual) {
  const FormatRow& format = row(case_.key.format);
  const std::int64_t width = std::int64_t{case_.key.kv_heads} * case_.key.head_dim;
  const auto bytes = static_cast<std::size_t>(kv_position_bytes(case_.key.format, width));
  const auto numbers = [&](const Bytes& from, std::size_t position) {
    const std::byte* at = from.data() + position * bytes;
    std::vector<float> out(static_cast<std::size_t>(width));
    if (case_.key.format != Format::q8_0) {
      format.unpack(at, width, out.data());
      return out;
    }
    for (std::int64_t b = 0; b < width / 32; ++b) {
      std::byte block[34];
      std::memcpy(block, at + width + 2 * b, 2);
      std::memcpy(block + 2, at + 32 * b, 32);
      format.unpack(block, 32, out.data() + 32 * b);
    }
    return out;
  };
  for (std::size_t position = 0; position < expected.size() / bytes; ++position) {
    const std::vector<float> should = numbers(expected, position), is = numbers(actual, position);
    for (std::size_t i = 0; i < should.size(); ++i)
      add_value(3, should[i], is[i], position * should.size() + i);
  }
}

// What is greater than f16 has, within the bound, may be the greatest there is or infinity.
void Comparison::add_half(float expected, float actual, std::size_t at) {
  constexpr float kGreatest = 65504;
  const auto edge = static_cast<float>(kGreatest * (1 - error_bound(case_.key)));
  if (std::isinf(actual) && !std::isinf(expected) && std::abs(expected) >= edge)
    actual = std::copysign(kGreatest, actual);
  if (std::isinf(expected) && !std::isinf(actual) && std::abs(actual) >= edge)
    expected = std::copysign(kGreatest, expected);
  add_value(4, expected, actual, at);
}

void Comparison::add_value(std::size_t sum, double expected, double actual, std::size_t at) {
  // Not written, neither here nor there.
  if (std::isnan(expected) &&
      std::bit_cast<std::uint64_t>(expected) == std::bit_cast<std::uint64_t>(actual))
    return;
  // No value, or no position in this split: nothing to be near to.
  const bool exact = !std::isfinite(expected) || expected == static_cast<double>(-3.0e38f);
  if (exact ? expected != actual : !std::isfinite(actual)) {
    if (first_problem_.empty())
      first_problem_ = std::string(sums_[sum].what) + " at " + std::to_string(at) + ": " +
                       std::to_string(actual) + ", should be " + std::to_string(expected);
    return;
  }
  if (exact) return;
  const double difference = actual - expected;
  sums_[sum].error += difference * difference;
  sums_[sum].norm += expected * expected;
}

double Comparison::worst_error() const {
  double worst = 0;
  for (const Sum& sum : sums_)
    if (sum.error > 0) worst = std::max(worst, std::sqrt(sum.error / sum.norm));
  return worst;
}

std::string Comparison::problem() const {
  if (!first_problem_.empty()) return first_problem_;
  for (const Sum& sum : sums_) {
    const double error = sum.error > 0 ? std::sqrt(sum.error / sum.norm) : 0;
    if (!(error <= error_bound(case_.key)))
      return std::string("relative L2 error of the ") + sum.what + " is " + scientific(error) +
             ", the bound " + scientific(error_bound(case_.key));
  }
  return {};
}

}  // namespace lathe::verification
