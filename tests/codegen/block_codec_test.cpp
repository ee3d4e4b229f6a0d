// Owns the tests of what the codecs of activations make of values that are no numbers.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "lathe/codegen/format.h"

namespace lathe {
namespace {

// As if it were 0: neither the scale nor the other codes know of it.
TEST(BlockCodec, WhatIsNoNumberHasTheCodeZero) {
  for (const Format format : {Format::q8_0, Format::q8_1, Format::q8_k}) {
    std::vector<float> values(256);
    for (int i = 0; i < 256; ++i) values[i] = static_cast<float>(i % 37 - 18);
    std::vector<float> with_nan = values;
    for (int i : {0, 5, 40, 255}) {
      values[i] = 0;
      with_nan[i] = std::numeric_limits<float>::quiet_NaN();
    }
    std::vector<std::byte> expected(static_cast<std::size_t>(row_bytes(format, 256)));
    std::vector<std::byte> found(expected.size());
    row(format).pack(values.data(), 256, expected.data());
    row(format).pack(with_nan.data(), 256, found.data());
    EXPECT_EQ(found, expected) << row(format).name;
  }
}

}  // namespace
}  // namespace lathe
