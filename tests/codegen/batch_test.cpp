// Owns the tests that a token of a batch is what it would be alone: to the bit, whatever the other
// tokens are and however many.
#include <gtest/gtest.h>

#include <cstring>
#include <string_view>

#include "tests/codegen/kernel_cases.h"
#include "emulation/emulator.h"

namespace lathe::testing {
namespace {

// The kernel for one token. Those that choose tokens have one without a batch.
KernelKey key_of_one(const KernelKey& key) {
  KernelKey one = key;
  one.tokens = 1;
  one.batched = key.batched && key.type == KernelType::append_tokens;
  return one;
}

std::vector<Bytes> emulated(const KernelKey& key, std::vector<Bytes> arguments,
                            std::uint64_t seed) {
  std::vector<void*> pointers;
  for (Bytes& bytes : arguments) pointers.push_back(bytes.data());
  const Result<void> ran = emulation::emulate(key, pointers, seed);
  EXPECT_TRUE(ran) << ran.error().text();
  return arguments;
}

// Where a parameter of one token's kernel is among those of the batch's.
std::size_t place(const std::vector<Param>& params, std::string_view name) {
  if (name == "position") name = "rows";
  std::size_t i = 0;
  while (params.at(i).name != name) ++i;
  return i;
}

void each_token_alone(const KernelCase& c, std::uint64_t seed) {
  const KernelRow& kernel = row(c.key.type);
  const KernelKey one = key_of_one(c.key);
  const std::vector<Param> params = kernel.params(c.key), own_params = kernel.params(one);
  const std::vector<Bytes> before = make_arguments(c, seed);
  const std::vector<Bytes> after = emulated(c.key, before, seed);
  for (int token = 0; token < c.count; ++token) {
    SCOPED_TRACE("token " + std::to_string(token));
    // A token's part of an argument, or all of one that tokens share.
    const auto part = [&](const std::vector<Bytes>& arguments, const Param& param) {
      const std::size_t at = place(params, param.name);
      const Bytes& all = arguments[at];
      if (params[at].bytes == param.bytes) return all;
      const auto stride = static_cast<std::size_t>(params[at].bytes / c.key.tokens);
      const auto* from = all.data() + static_cast<std::size_t>(token) * stride;
      return Bytes(from, from + param.bytes);
    };
    std::vector<Bytes> own;
    for (const Param& param : own_params) {
      own.push_back(part(before, param));
      const std::int32_t count = 1;
      if (param.name == std::string_view("chunk"))
        std::memcpy(own.back().data(), &count, sizeof count);
    }
    const std::vector<Bytes> alone = emulated(one, own, seed + 1);
    for (std::size_t i = 0; i < own_params.size(); ++i) {
      const Param& param = own_params[i];
      if (param.access == Access::read || param.scratch || param.element == Element::kv) continue;
      EXPECT_TRUE(alone[i] == part(after, param)) << param.name;
    }
  }
}

class BatchTest : public ::testing::TestWithParam<Family> {};

std::vector<Family> batched_families() {
  std::vector<Family> out;
  for (const Family& family : families())
    for (const KernelCase& c : kernel_cases(family))
      if (c.batch.size() > 1) {
        out.push_back(family);
        break;
      }
  return out;
}

TEST_P(BatchTest, ATokenIsWhatItWouldBeAlone) {
  int tried = 0;
  for (const KernelCase& c : kernel_cases(GetParam())) {
    if (c.batch.size() < 2 || c.key.n > 5000) continue;
    SCOPED_TRACE(c.text());
    each_token_alone(c, 20 + static_cast<std::uint64_t>(tried++));
    if (HasFailure()) return;
  }
  EXPECT_GT(tried, 0);
}

INSTANTIATE_TEST_SUITE_P(Kernels, BatchTest, ::testing::ValuesIn(batched_families()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace lathe::testing
