// Owns the tests of the format table: geometry, decoding against another implementation, rounding.
#include "lathe/codegen/format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "tests/codegen/kernel_cases.h"
#include "verification/random.h"

namespace lathe {
namespace {

using verification::Random;

std::string name_of(const ::testing::TestParamInfo<FormatRow>& info) {
  return info.param.name;
}

class FormatTest : public ::testing::TestWithParam<FormatRow> {
 protected:
  std::vector<float> round_trip(const std::vector<float>& in) const {
    std::vector<std::byte> blocks(
        static_cast<std::size_t>(row_bytes(format_.format, static_cast<std::int64_t>(in.size()))));
    format_.pack(in.data(), static_cast<std::int64_t>(in.size()), blocks.data());
    std::vector<float> out(in.size());
    format_.unpack(blocks.data(), static_cast<std::int64_t>(in.size()), out.data());
    return out;
  }

  // The greatest error that rounding a run of values to this format can make.
  double greatest_error(const std::vector<float>& x) const {
    const auto [least, most] = std::minmax_element(x.begin(), x.end());
    const double top = std::max(std::fabs(*least), std::fabs(*most));
    const double range = static_cast<double>(*most) - *least;
    const double low = std::max(0.0, -static_cast<double>(*least));
    // Half a unit of a scale stored as f16, times the codes that it multiplies; of an offset, one.
    const auto half_scale = [top](int codes) { return std::max(top * 0x1p-11, codes * 0x1p-25); };
    // Half a step, and half a unit of the scale and of the min in whole numbers.
    const auto by_two_scales = [=](int codes, int scales) {
      return (range + low) / (2 * codes) + (range + 2 * low) / (2 * scales) +
             half_scale(codes * scales) + half_scale(scales);
    };
    switch (format_.format) {
      case Format::f32:
      case Format::f64:
        return 0;
      case Format::f16:
        return half_scale(1);
      case Format::bf16:
        return top * 0x1p-8;
      case Format::q4_0:
        return top / 14 + half_scale(8);
      case Format::q5_0:
        return top / 30 + half_scale(16);
      case Format::q8_0:
      case Format::q8_1:
      case Format::q8_1_tail:
        return top / 254 + half_scale(127);
      case Format::q4_1:
      case Format::q4_k_soa:
        return range / 30 + half_scale(15) + half_scale(1);
      case Format::q5_1:
        return range / 62 + half_scale(31) + half_scale(1);
      case Format::q4_k:
        return by_two_scales(15, 63);
      case Format::q5_k:
        return by_two_scales(31, 63);
      case Format::q6_k:
        return top / 62 + top / 254 + half_scale(32 * 128);
      case Format::q2_k:
        return by_two_scales(3, 15);
      case Format::q3_k:
        return top / 6 + top / 62 + half_scale(4 * 32);
      case Format::iq4_nl:  // half of the widest gap in the table, the greatest entry for `top`
        return top * 12 / 113 + half_scale(127);
      case Format::iq4_xs:
        return top * 12 / 113 * (1 + 1.0 / 62) + top / 62 + half_scale(127 * 32);
      case Format::mxfp4:  // at worst 5 between 4 and 6
        return top / 5;
      case Format::q8_k:
        return top / 254 * (1 + 0x1p-15);  // the quotient, up to 127, is rounded first
      case Format::fp8_e4m3:
        return std::max(top * 0x1p-4, 0x1p-10);  // its least step is 2^-9
      case Format::ternary:                      // what lies beyond 1 becomes 1
        return std::max(0.5, top - 1);
    }
    return 0;
  }

  // What the least code stands for beside a 1 in the same block: 0 but where the table has no 0.
  double least_beside_one() const {
    return format_.format == Format::iq4_nl || format_.format == Format::iq4_xs ? 1.0 / 113 : 0;
  }

  const FormatRow& format_ = GetParam();
};

INSTANTIATE_TEST_SUITE_P(Formats, FormatTest, ::testing::ValuesIn(formats()), name_of);

TEST_P(FormatTest, IsFoundByNameAndType) {
  EXPECT_EQ(&row(format_.format), &formats()[static_cast<std::size_t>(format_.format)]);
  std::string upper = format_.name;
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  for (const std::string& name : {std::string(format_.name), upper}) {
    const Result<Format> found = format_by_name(name);
    ASSERT_TRUE(found);
    EXPECT_EQ(*found, format_.format);
  }
  const Result<Format> found = format_by_ggml_type(format_.ggml_type);
  ASSERT_EQ(static_cast<bool>(found), format_.ggml_type != kNoFileType);
  if (found) {
    EXPECT_EQ(*found, format_.format);
  }
}

TEST_P(FormatTest, AlignmentDividesEveryBlockOffset) {
  EXPECT_EQ(format_.bytes % format_.alignment, 0);
  EXPECT_TRUE(format_.alignment == 16 || format_.bytes % (2 * format_.alignment) != 0);
  EXPECT_EQ(row_bytes(format_.format, 3 * format_.block), 3 * format_.bytes);
}

TEST_P(FormatTest, DecodesLikeGguf) {
  std::ifstream file(LATHE_CODEGEN_DATA "/formats.txt");
  std::string line, name, hex, word;
  while (std::getline(file, line)) {
    std::istringstream in(line);
    in >> name >> hex;
    if (name != format_.name) continue;
    std::vector<std::byte> blocks;
    for (std::size_t i = 0; i < hex.size(); i += 2)
      blocks.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    std::vector<std::uint32_t> expected;
    while (in >> word)
      expected.push_back(static_cast<std::uint32_t>(std::stoul(word, nullptr, 16)));
    ASSERT_EQ(row_bytes(format_.format, static_cast<std::int64_t>(expected.size())),
              static_cast<std::int64_t>(blocks.size()));
    std::vector<float> values(expected.size());
    format_.unpack(blocks.data(), static_cast<std::int64_t>(values.size()), values.data());
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(std::bit_cast<std::uint32_t>(values[i]), expected[i]) << "value " << i;
    return;
  }
  FAIL() << "no line for " << format_.name;
}

TEST_P(FormatTest, OneHotReturnsEveryElement) {
  const auto size = static_cast<std::size_t>(2 * std::max(format_.block, 32));
  for (std::size_t hot = 0; hot < size; ++hot) {
    std::vector<float> in(size);
    in[hot] = 1;
    const std::vector<float> out = round_trip(in);
    for (std::size_t i = 0; i < size; ++i)
      ASSERT_NEAR(out[i], in[i], 2e-3 + (i == hot ? 0 : least_beside_one()))
          << "element " << i << ", hot " << hot;
  }
}

TEST_P(FormatTest, RoundTripKeepsToTheStep) {
  const std::uint64_t seed = verification::fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> in(static_cast<std::size_t>(std::max(format_.block, 32)));
    const float offset = random.uniform(-2, 2), scale = random.uniform(0.001f, 10);
    for (float& x : in) x = scale * (random.normal() + offset);
    const std::vector<float> out = round_trip(in);
    const double bound = greatest_error(in);
    for (std::size_t i = 0; i < in.size(); ++i)
      ASSERT_LE(std::fabs(static_cast<double>(out[i]) - in[i]), bound) << "element " << i;
  }
}

TEST_P(FormatTest, ZerosAndEqualValuesSurvive) {
  const auto size = static_cast<std::size_t>(std::max(format_.block, 32));
  EXPECT_EQ(round_trip(std::vector<float>(size)), std::vector<float>(size));
  std::vector<float> values = {0.5f, -0.5f, 1000.0f};
  if (format_.format == Format::fp8_e4m3) values = {0.5f, -0.5f, 448.0f};
  if (format_.format == Format::ternary) values = {1, -1};
  for (float value : values)
    for (float x : round_trip(std::vector<float>(size, value)))
      EXPECT_NEAR(x, value, std::fabs(value) * (format_.format == Format::mxfp4 ? 0.03 : 0.02));
}

// Geometry as the GGUF specification has it.
TEST(Format, TableMatchesTheSpecification) {
  const struct {
    const char* name;
    std::uint32_t type;
    int block, bytes;
  } expected[] = {{"f32", 0, 1, 4},
                  {"f16", 1, 1, 2},
                  {"bf16", 30, 1, 2},
                  {"q4_0", 2, 32, 18},
                  {"q4_1", 3, 32, 20},
                  {"q5_0", 6, 32, 22},
                  {"q5_1", 7, 32, 24},
                  {"q8_0", 8, 32, 34},
                  {"q4_k", 12, 256, 144},
                  {"q5_k", 13, 256, 176},
                  {"q6_k", 14, 256, 210},
                  {"q2_k", 10, 256, 84},
                  {"q3_k", 11, 256, 110},
                  {"iq4_nl", 20, 32, 18},
                  {"iq4_xs", 23, 256, 136},
                  {"mxfp4", 39, 32, 17},
                  {"q8_1", 9, 32, 36},
                  {"q8_1_tail", kNoFileType, 32, 36},
                  {"q8_k", 15, 256, 292},
                  {"q4_k_soa", 112, 256, 160},
                  {"fp8_e4m3", kNoFileType, 1, 1},
                  {"ternary", kNoFileType, 32, 8},
                  {"f64", kNoFileType, 1, 8}};
  ASSERT_EQ(formats().size(), std::size(expected));
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    EXPECT_STREQ(formats()[i].name, expected[i].name);
    EXPECT_EQ(formats()[i].ggml_type, expected[i].type);
    EXPECT_EQ(formats()[i].block, expected[i].block);
    EXPECT_EQ(formats()[i].bytes, expected[i].bytes);
    EXPECT_EQ(formats()[i].alignment, expected[i].bytes & -expected[i].bytes);
  }
}

TEST(Format, ErrorsListWhatIsKnown) {
  const Result<Format> by_name = format_by_name("iq3_s");
  ASSERT_FALSE(by_name);
  EXPECT_EQ(by_name.error().code, Code::unsupported);
  EXPECT_NE(by_name.error().message.find("q4_k"), std::string::npos);
  EXPECT_FALSE(format_by_name(""));
  EXPECT_FALSE(format_by_name("q4"));
  const Result<Format> by_type = format_by_ggml_type(21);
  ASSERT_FALSE(by_type);
  EXPECT_NE(by_type.error().message.find("21"), std::string::npos);
  const std::string list = by_type.error().message + " ";
  for (const FormatRow& format : formats())
    EXPECT_EQ(list.find(std::string(" ") + format.name + " ") != std::string::npos,
              format.ggml_type != kNoFileType)
        << format.name;
}

double half_value(std::uint32_t code) {
  const int exponent = static_cast<int>(code >> 10 & 31);
  const double fraction = code & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return code & 0x8000 ? -magnitude : magnitude;
}

TEST(HalfPrecision, EveryCodeReadsAsDefined) {
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const float value = f16_to_f32(static_cast<std::uint16_t>(code));
    if ((code & 0x7c00) == 0x7c00) {
      if (code & 1023)
        EXPECT_TRUE(std::isnan(value)) << code;
      else
        EXPECT_EQ(value, (code & 0x8000 ? -1 : 1) * std::numeric_limits<float>::infinity());
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), half_value(code)) << code;
    ASSERT_EQ(f32_to_f16(value), code);
  }
}

// Between every two neighbouring codes: the midpoint goes to the even one, its neighbours to the
// nearer one. Past the greatest half the same rule leads to infinity.
TEST(HalfPrecision, RoundsToNearestEven) {
  for (std::uint32_t code = 0; code < 0x7c00; ++code) {
    const double above = code + 1 == 0x7c00 ? 65536 : half_value(code + 1);
    const auto middle = static_cast<float>((half_value(code) + above) / 2);
    const std::uint32_t even = code + (code & 1);
    ASSERT_EQ(f32_to_f16(middle), even) << code;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), code) << code;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 1e9f)), code + 1) << code;
    ASSERT_EQ(f32_to_f16(-middle), even | 0x8000) << code;
  }
  EXPECT_EQ(f32_to_f16(1e30f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(std::nanf("")))));
}

TEST(Bfloat16, EveryCodeAndRounding) {
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const float value = bf16_to_f32(static_cast<std::uint16_t>(code));
    ASSERT_EQ(std::bit_cast<std::uint32_t>(value), code << 16);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(value))));
      continue;
    }
    ASSERT_EQ(f32_to_bf16(value), code);
    if (std::isinf(value)) continue;
    const auto between = [&](std::uint32_t low) {
      return f32_to_bf16(std::bit_cast<float>(code << 16 | low));
    };
    ASSERT_EQ(between(0x7fff), code);
    ASSERT_EQ(between(0x8000), code + (code & 1));
    ASSERT_EQ(between(0x8001), code + 1);
  }
}

double e4m3_value(std::uint32_t code) {
  const int exponent = static_cast<int>(code >> 3 & 15);
  const double fraction = code & 7;
  return exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
}

TEST(EightBitFloats, EveryCodeReadsAsDefined) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    const float value = e4m3_to_f32(static_cast<std::uint8_t>(code));
    ASSERT_EQ(std::signbit(value), code >= 128) << code;
    ASSERT_EQ(f32_to_e4m3(value), code);
    if ((code & 127) == 127)
      EXPECT_TRUE(std::isnan(value));
    else
      ASSERT_EQ(std::fabs(static_cast<double>(value)), e4m3_value(code & 127)) << code;
  }
  EXPECT_EQ(e4m3_to_f32(0x7e), 448);
}

TEST(EightBitFloats, RoundToNearestEvenAndNoFurtherThanTheGreatest) {
  for (std::uint32_t code = 0; code < 0x7e; ++code) {
    const auto middle = static_cast<float>((e4m3_value(code) + e4m3_value(code + 1)) / 2);
    const std::uint32_t even = code + (code & 1);
    ASSERT_EQ(f32_to_e4m3(middle), even) << code;
    ASSERT_EQ(f32_to_e4m3(std::nextafter(middle, 0.0f)), code) << code;
    ASSERT_EQ(f32_to_e4m3(std::nextafter(middle, 1e9f)), code + 1) << code;
    ASSERT_EQ(f32_to_e4m3(-middle), even | 0x80) << code;
  }
  for (float value : {448.1f, 464.0f, 480.0f, 1e30f, std::numeric_limits<float>::infinity()})
    EXPECT_EQ(f32_to_e4m3(value), 0x7e) << value;
}

// What Q4_K has in products, with each rounded once.
TEST(Q4KSoA, ComesFromQ4KByOneRoundingOfEachScale) {
  constexpr std::int64_t kValues = 512;
  Random random(7);
  std::vector<std::byte> blocks(288), soa(320);
  for (std::byte& byte : blocks) byte = static_cast<std::byte>(random.bits() >> 56);
  for (std::size_t at : {0, 2, 144, 146}) {
    const std::uint16_t half = f32_to_f16(random.uniform(0.001f, 1));
    std::memcpy(blocks.data() + at, &half, 2);
  }
  q4_k_to_soa(blocks.data(), kValues, soa.data());
  std::vector<float> from(kValues), to(kValues);
  row(Format::q4_k).unpack(blocks.data(), kValues, from.data());
  row(Format::q4_k_soa).unpack(soa.data(), kValues, to.data());
  for (std::size_t run = 0; run < kValues / 32; ++run) {
    const auto half = [&](std::size_t at) {
      std::uint16_t bits;
      std::memcpy(&bits, soa.data() + run / 8 * 160 + at + run % 8 * 2, 2);
      return static_cast<double>(f16_to_f32(bits));
    };
    const double bound = 15 * std::fabs(half(128)) * 0x1p-11 + std::fabs(half(144)) * 0x1p-11;
    for (std::size_t i = run * 32; i < run * 32 + 32; ++i)
      ASSERT_NEAR(to[i], from[i], bound * 1.01 + 1e-7) << "value " << i;
  }
}

// The sums that products with weights want: of codes, of values, of 16 codes.
TEST(ActivationFormats, SumsAreThoseOfTheValues) {
  Random random(9);
  std::vector<float> in(256), out(256);
  for (float& x : in) x = random.normal();
  std::vector<std::byte> blocks(292);
  const auto half = [&](std::size_t at) {
    std::uint16_t bits;
    std::memcpy(&bits, blocks.data() + at, 2);
    return f16_to_f32(bits);
  };
  for (Format format : {Format::q8_1, Format::q8_1_tail}) {
    row(format).pack(in.data(), 256, blocks.data());
    row(format).unpack(blocks.data(), 256, out.data());
    for (std::size_t b = 0; b < 8; ++b) {
      double codes = 0, values = 0;
      for (std::size_t i = 32 * b; i < 32 * b + 32; ++i) codes += out[i], values += in[i];
      const bool tail = format == Format::q8_1_tail;
      EXPECT_NEAR(half(36 * b + (tail ? 34 : 2)), tail ? values : codes, 0x1p-11 * 32);
      EXPECT_NEAR(codes, values, 1.0);
    }
  }
  row(Format::q8_k).pack(in.data(), 256, blocks.data());
  for (std::size_t run = 0; run < 16; ++run) {
    int sum = 0;
    for (std::size_t i = 0; i < 16; ++i)
      sum += std::to_integer<int>(blocks[4 + 16 * run + i] ^ std::byte{128}) - 128;
    std::int16_t stored;
    std::memcpy(&stored, blocks.data() + 260 + 2 * run, 2);
    EXPECT_EQ(stored, sum);
  }
}

}  // namespace
}  // namespace lathe
