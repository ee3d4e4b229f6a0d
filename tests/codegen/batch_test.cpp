// Owns the tests that a token of a batch is what it would be alone: to the bit, whatever the other
// tokens are and however many.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "emulation/emulator.h"
#include "ptx_templates/ops/matmul_shapes.h"
#include "tests/codegen/kernel_cases.h"

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

// What is made for matmul has no rows of its own (ops/matmul_shapes.h).
bool has_operands(const Param& param) {
  return param.element == Element::f16 && param.name == std::string_view("y");
}
Bytes operands_of(const Bytes& all, const Param& param, const KernelKey& key, int token) {
  const int tokens = dev::few_tokens(key.tokens);
  const int of_64 = 64 * tokens + dev::operand_means_of_64(tokens);
  const int width = static_cast<int>(param.bytes) / 2 / of_64 * 64;
  Bytes out(static_cast<std::size_t>(width / 16 * 17) * 2);
  auto* next = out.data();
  const auto add = [&](std::int64_t from) { next = std::copy_n(all.data() + 2 * from, 2, next); };
  for (int i = 0; i < width; ++i) add(dev::operand_place(token, i, width, tokens));
  for (int i = 0; i < width; i += 16) add(dev::operand_mean_place(token, i, width, tokens));
  return out;
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
      if (has_operands(param)) return operands_of(all, params[at], c.key, token);
      if (params[at].bytes == param.bytes) return all;
      const auto stride = static_cast<std::size_t>(params[at].bytes / c.key.tokens);
      const auto* from = all.data() + static_cast<std::size_t>(token) * stride;
      return Bytes(from, from + param.bytes);
    };
    std::vector<Bytes> own;
    for (const Param& param : own_params) {
      own.push_back(part(before, param));
      if (has_operands(param)) own.back().resize(static_cast<std::size_t>(param.bytes));
      const std::int32_t count = 1;
      if (param.name == std::string_view("chunk"))
        std::memcpy(own.back().data(), &count, sizeof count);
    }
    const std::vector<Bytes> alone = emulated(one, own, seed + 1);
    for (std::size_t i = 0; i < own_params.size(); ++i) {
      const Param& param = own_params[i];
      if (param.access == Access::read || param.scratch || param.element == Element::kv) continue;
      const Bytes& of_one = has_operands(param) ? operands_of(alone[i], param, one, 0) : alone[i];
      EXPECT_TRUE(of_one == part(after, param)) << param.name;
    }
  }
}

class BatchTest : public ::testing::TestWithParam<Family> {};

std::vector<Family> batched_families() {
  std::vector<Family> out;
  for (const Family& family : families()) {
    // Every test's process asks before it begins: cases are made where nothing else tells.
    if (!row(family.type).uses("tokens")) continue;
    if (std::ranges::any_of(kernel_cases(family),
                            [](const KernelCase& c) { return c.batch.size() > 1; }))
      out.push_back(family);
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

// Products of the same tokens among few and among many, in each form that plans choose: blocks that
// share the work, and that have a row block each.
TEST(MatmulOfABatch, HasTheSameBitsForAnyNumberOfRows) {
  struct Form {
    int blocks, warps, splits;
    bool paired;
  };
  for (const Format format : {Format::q4_k, Format::q6_k, Format::q8_0}) {
    for (const Form& form : {Form{5, 9, 1, false}, Form{5, 9, 4, false}, Form{5, 5, 4, false},
                             Form{2, 3, 1, true}, Form{3, 3, 2, true}}) {
      KernelCase c;
      c.key = {.type = KernelType::matmul, .format = format};
      c.key.k = 1536;
      c.key.n = 70;
      c.key.warps = form.warps;
      c.key.blocks = form.blocks;
      c.key.splits = form.splits;
      c.key.paired = form.paired;
      c.key.tokens = c.count = 32;
      const KernelRow& kernel = row(c.key.type);
      const std::vector<Bytes> arguments = device_arguments(c, make_arguments(c, 7));
      const Bytes all = emulated(c.key, arguments, 8).back();
      for (const int tokens : {8, 16}) {
        SCOPED_TRACE(c.key.text() + " and " + std::to_string(tokens));
        KernelKey fewer = c.key;
        fewer.tokens = tokens;
        std::vector<Bytes> own = arguments;
        const std::vector<Param> params = kernel.params(fewer);
        const std::size_t x = place(params, "x");
        for (int token = 0; token < tokens; ++token)
          for (int i = 0; i < c.key.k; ++i)
            for (const auto place_of : {dev::operand_place, dev::operand_mean_place})
              std::memcpy(own[x].data() + 2 * place_of(token, i, c.key.k, tokens),
                          arguments[x].data() + 2 * place_of(token, i, c.key.k, 32), 2);
        for (std::size_t i = 0; i < own.size(); ++i)
          own[i].resize(static_cast<std::size_t>(params[i].bytes));
        const std::int32_t count = tokens;
        std::memcpy(own[place(params, "chunk")].data(), &count, sizeof count);
        const Bytes some = emulated(fewer, own, 9).back();
        EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin()));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, BatchTest, ::testing::ValuesIn(batched_families()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace lathe::testing
