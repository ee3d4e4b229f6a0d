// Owns the tests of damaged and hostile GGUF files: each yields one error and touches nothing
// outside the bytes (run under AddressSanitizer to prove the latter).
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "lathe/plan/gguf.h"
#include "tests/plan/gguf_writer.h"

namespace lathe {
namespace {

using testing::GgufField;
using testing::GgufImage;
using testing::GgufType;
using testing::GgufWriter;

constexpr std::uint32_t kF32 = 0;
constexpr std::uint32_t kQ4K = 12;
constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

// Reads from an allocation of exactly the file's size, so that one byte too far is seen.
Result<std::shared_ptr<const GgufFile>> read(std::span<const std::byte> bytes) {
  const auto copy = std::make_unique<std::byte[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), copy.get());
  return GgufFile::from_bytes({copy.get(), bytes.size()}, "hostile.gguf");
}

void expect_refused(std::span<const std::byte> bytes, std::string_view part,
                    Code code = Code::corrupt_file) {
  const auto file = read(bytes);
  ASSERT_FALSE(file) << "accepted, but should name: " << part;
  EXPECT_EQ(file.error().code, code) << file.error().message;
  EXPECT_NE(file.error().message.find(part), std::string::npos)
      << "got: " << file.error().message << "\nwanted: " << part;
}

GgufWriter sample() {
  GgufWriter writer;
  writer.u32("general.alignment", 32);
  writer.string("general.name", "sample");
  writer.boolean("flag", true);
  writer.array("numbers", GgufType::i32, std::vector<std::int32_t>{1, 2, 3});
  writer.strings("tokens", {"a", "bc", "def"});
  writer.number("wide", GgufType::u64, std::uint64_t{5});
  writer.tensor("first", {256, 2}, kQ4K, std::vector<std::byte>(288));
  writer.tensor("second", {16}, kF32, std::vector<std::byte>(64));
  return writer;
}

TEST(HostileGguf, TheSampleItselfIsRead) {
  const auto file = read(sample().image().bytes);
  EXPECT_TRUE(file) << file.error().text();
}

TEST(HostileGguf, EveryTruncationIsRefused) {
  const std::vector<std::byte> bytes = sample().image().bytes;
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const auto file = read(std::span(bytes).first(length));
    ASSERT_FALSE(file) << "accepted at " << length << " of " << bytes.size() << " bytes";
    EXPECT_EQ(file.error().code, Code::corrupt_file);
    EXPECT_FALSE(file.error().message.empty());
  }
}

TEST(HostileGguf, EveryFieldMadeAbsurdIsRefusedOrHarmless) {
  const GgufImage image = sample().image();
  const std::uint64_t absurd[] = {0,
                                  1,
                                  2,
                                  5,
                                  7,
                                  9,
                                  13,
                                  31,
                                  255,
                                  256,
                                  257,
                                  65535,
                                  0x7fffffff,
                                  0x80000000,
                                  0xfffffffff,
                                  kMax >> 1,
                                  (kMax >> 1) + 1,
                                  kMax / 3,
                                  kMax - 7,
                                  kMax};
  for (const GgufField& field : image.fields) {
    for (const std::uint64_t value : absurd) {
      GgufImage damaged = image;
      damaged.set(field.name, value);
      const auto file = read(damaged.bytes);
      if (!file) {
        EXPECT_FALSE(file.error().message.empty()) << field.name << " = " << value;
      }
    }
  }
}

TEST(HostileGguf, EveryFieldOfAllOnesIsRefused) {
  const GgufImage image = sample().image();
  for (const GgufField& field : image.fields) {
    // A tensor of a type unknown here is none of the reader's business.
    if (field.name.starts_with("tensor") && field.name.ends_with("type")) continue;
    GgufImage damaged = image;
    damaged.set(field.name, kMax);
    const auto file = read(damaged.bytes);
    ASSERT_FALSE(file) << field.name;
    EXPECT_FALSE(file.error().message.empty());
  }
}

TEST(HostileGguf, EveryFlippedByteIsRefusedOrHarmless) {
  const std::vector<std::byte> bytes = sample().image().bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::vector<std::byte> damaged = bytes;
      damaged[i] ^= static_cast<std::byte>(flip);
      const auto file = read(damaged);
      if (!file) {
        EXPECT_FALSE(file.error().message.empty());
      }
    }
  }
}

TEST(HostileGguf, HeaderRefusalsNameTheField) {
  GgufImage image = sample().image();
  image.set("magic", 0x12345678);
  expect_refused(image.bytes, "not a GGUF file");
  image = sample().image();
  image.set("version", 1);
  expect_refused(image.bytes, "GGUF version 1", Code::unsupported);
  image.set("version", 4);
  expect_refused(image.bytes, "version at byte 4 is 4", Code::unsupported);
  image.set("version", 0x03000000);
  expect_refused(image.bytes, "big-endian", Code::unsupported);
  image = sample().image();
  image.set("tensor count", 1u << 31);
  expect_refused(image.bytes, "tensor count at byte 8");
  image = sample().image();
  image.set("metadata count", kMax);
  expect_refused(image.bytes, "metadata count at byte 16");
}

TEST(HostileGguf, MetadataRefusalsNameTheKey) {
  GgufImage image = sample().image();
  image.set("key 1 type", 13);
  expect_refused(image.bytes, "'general.name'");
  image = sample().image();
  image.set("key 1 string length", kMax);
  expect_refused(image.bytes, "'general.name'");
  image = sample().image();
  image.set("key 3 element count", kMax / 4 + 2);
  expect_refused(image.bytes, "'numbers'");
  image = sample().image();
  image.set("key 3 element type", 99);
  expect_refused(image.bytes, "unknown type 99");
  image = sample().image();
  image.set("key 3 element type", 9);
  expect_refused(image.bytes, "array of arrays", Code::unsupported);
  image = sample().image();
  image.set("key 0 length", 0);
  expect_refused(image.bytes, "is empty");
}

TEST(HostileGguf, BadNamesAreRefused) {
  GgufWriter control;
  control.u32("a\nb", 1);
  expect_refused(control.image().bytes, "control character 0x0a");
  GgufWriter zero;
  zero.u32(std::string("a\0b", 3), 1);
  expect_refused(zero.image().bytes, "control character 0x00");
  GgufWriter long_key;
  long_key.u32(std::string(65536, 'k'), 1);
  expect_refused(long_key.image().bytes, "the limit is 65535");
  GgufWriter long_name;
  long_name.tensor(std::string(65, 't'), {1}, kF32, std::vector<std::byte>(4));
  expect_refused(long_name.image().bytes, "the limit is 64");
  GgufWriter no_name;
  no_name.tensor("", {1}, kF32, std::vector<std::byte>(4));
  expect_refused(no_name.image().bytes, "is empty");
}

TEST(HostileGguf, BadBooleansAreRefused) {
  GgufWriter one;
  one.number("flag", GgufType::boolean, std::uint8_t{2});
  expect_refused(one.image().bytes, "is the boolean 2");
  GgufWriter many;
  many.array("flags", GgufType::boolean, std::vector<std::uint8_t>{0, 1, 7});
  expect_refused(many.image().bytes, "is the boolean 7");
}

TEST(HostileGguf, WideUnsignedElementsAreRefused) {
  GgufWriter writer;
  writer.array("wide", GgufType::u64, std::vector<std::uint64_t>{1, kMax});
  expect_refused(writer.image().bytes, "'wide'", Code::unsupported);
}

TEST(HostileGguf, DuplicatesAreRefused) {
  GgufWriter keys;
  keys.u32("same", 1);
  keys.u32("same", 1);
  expect_refused(keys.image().bytes, "key 'same' at byte 44 occurs twice");
  GgufWriter tensors;
  tensors.tensor("same", {1}, kF32, std::vector<std::byte>(4));
  tensors.tensor("same", {1}, kF32, std::vector<std::byte>(4));
  expect_refused(tensors.image().bytes, "tensor name 'same' occurs twice");
}

TEST(HostileGguf, BadAlignmentsAreRefused) {
  for (const std::uint32_t alignment : {0u, 3u, 33u, 1u << 21, 0xffffffffu}) {
    GgufWriter writer;
    writer.u32("general.alignment", alignment);
    writer.tensor("a", {1}, kF32, std::vector<std::byte>(4));
    expect_refused(writer.image().bytes, "'general.alignment'");
  }
  GgufWriter text;
  text.string("general.alignment", "32");
  expect_refused(text.image().bytes, "'general.alignment' is no integer");
}

TEST(HostileGguf, BadShapesAreRefused) {
  GgufImage image = sample().image();
  image.set("tensor 0 dims", 0);
  expect_refused(image.bytes, "dimension count of tensor 'first'");
  image.set("tensor 0 dims", 5);
  expect_refused(image.bytes, "dimension count of tensor 'first'");
  image = sample().image();
  image.set("tensor 0 dim 1", 0);
  expect_refused(image.bytes, "dimension 1 of tensor 'first'");
  image.set("tensor 0 dim 1", (kMax >> 1) / 255);
  expect_refused(image.bytes, "overflows");
  image.set("tensor 0 dim 1", 3);
  expect_refused(image.bytes, "the file ends at byte");
  image = sample().image();
  image.set("tensor 0 dim 0", 255);
  expect_refused(image.bytes, "no multiple of the 256 values");
  image = sample().image();
  image.set("tensor 1 dim 0", std::uint64_t{1} << 40);
  expect_refused(image.bytes, "more than the whole file");
}

TEST(HostileGguf, BadOffsetsAreRefused) {
  GgufImage image = sample().image();
  image.set("tensor 1 offset", 1);
  expect_refused(image.bytes, "no multiple of the alignment 32");
  image.set("tensor 1 offset", 0);
  expect_refused(image.bytes, "tensors 'first' and 'second' overlap");
  image.set("tensor 1 offset", 256);
  expect_refused(image.bytes, "overlap");
  image.set("tensor 1 offset", 352);
  expect_refused(image.bytes, "the file ends at byte");
  image.set("tensor 1 offset", kMax - 31);
  expect_refused(image.bytes, "past the end");
}

TEST(HostileGguf, UnknownTypesOverlapToo) {
  GgufImage image = sample().image();
  image.set("tensor 1 type", 9999);
  image.set("tensor 1 offset", 128);
  expect_refused(image.bytes, "overlap");
}

}  // namespace
}  // namespace lathe
