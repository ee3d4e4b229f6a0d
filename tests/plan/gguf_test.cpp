// Owns the tests of reading well-formed GGUF files.
#include "lathe/plan/gguf.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "tests/plan/gguf_writer.h"

namespace lathe {
namespace {

using testing::GgufImage;
using testing::GgufType;
using testing::GgufWriter;

constexpr std::uint32_t kF32 = 0;
constexpr std::uint32_t kUnknownType = 9999;

std::shared_ptr<const GgufFile> read(const GgufImage& image) {
  auto file = GgufFile::from_bytes(image.bytes, "test.gguf");
  EXPECT_TRUE(file) << (file ? "" : file.error().text());
  return file ? *file : nullptr;
}

std::vector<std::byte> bytes_of(std::size_t count, int value) {
  return std::vector<std::byte>(count, static_cast<std::byte>(value));
}

TEST(Gguf, ReadsEveryValueType) {
  GgufWriter writer;
  writer.number("u8", GgufType::u8, std::uint8_t{200});
  writer.number("i8", GgufType::i8, std::int8_t{-100});
  writer.number("u16", GgufType::u16, std::uint16_t{60000});
  writer.number("i16", GgufType::i16, std::int16_t{-30000});
  writer.number("u32", GgufType::u32, std::uint32_t{4000000000});
  writer.number("i32", GgufType::i32, std::int32_t{-2000000000});
  writer.number("u64", GgufType::u64, std::uint64_t{1} << 40);
  writer.number("i64", GgufType::i64, std::int64_t{-1} << 40);
  writer.number("f32", GgufType::f32, 0.5f);
  writer.number("f64", GgufType::f64, 0.125);
  writer.boolean("yes", true);
  writer.string("text", "words");
  const auto file = read(writer.image());
  ASSERT_TRUE(file);
  EXPECT_EQ(*file->integer("u8"), 200);
  EXPECT_EQ(*file->integer("i8"), -100);
  EXPECT_EQ(*file->integer("u16"), 60000);
  EXPECT_EQ(*file->integer("i16"), -30000);
  EXPECT_EQ(*file->integer("u32"), 4000000000);
  EXPECT_EQ(*file->integer("i32"), -2000000000);
  EXPECT_EQ(*file->integer("u64"), std::int64_t{1} << 40);
  EXPECT_EQ(*file->integer("i64"), std::int64_t{-1} << 40);
  EXPECT_EQ(*file->real("f32"), 0.5);
  EXPECT_EQ(*file->real("f64"), 0.125);
  EXPECT_EQ(*file->real("i8"), -100);
  EXPECT_EQ(*file->boolean("yes"), true);
  EXPECT_EQ(*file->string("text"), "words");
}

TEST(Gguf, ReadsArrays) {
  GgufWriter writer;
  writer.array("ints", GgufType::i32, std::vector<std::int32_t>{1, -2, 3});
  writer.array("bytes", GgufType::u8, std::vector<std::uint8_t>{255, 0});
  writer.array("reals", GgufType::f32, std::vector<float>{0.25f, -1});
  writer.array("flags", GgufType::boolean, std::vector<std::uint8_t>{1, 0, 1});
  writer.strings("words", {"a", "", "longer than the small-string buffer"});
  writer.strings("none", {});
  const auto file = read(writer.image());
  ASSERT_TRUE(file);
  EXPECT_EQ(*file->integers("ints"), (std::vector<std::int64_t>{1, -2, 3}));
  EXPECT_EQ(*file->integers("bytes"), (std::vector<std::int64_t>{255, 0}));
  EXPECT_EQ(*file->reals("reals"), (std::vector<double>{0.25, -1}));
  EXPECT_EQ(*file->booleans("flags"), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(*file->strings("words"),
            (std::vector<std::string>{"a", "", "longer than the small-string buffer"}));
  EXPECT_TRUE(file->strings("none")->empty());
  EXPECT_EQ(file->strings("ints"), nullptr);
  EXPECT_EQ(file->integers("absent"), nullptr);
}

TEST(Gguf, LookUpsNameTheKeyAndWhatItHolds) {
  GgufWriter writer;
  writer.string("text", "words");
  writer.number("huge", GgufType::u64, std::numeric_limits<std::uint64_t>::max());
  const auto file = read(writer.image());
  ASSERT_TRUE(file);
  const auto wrong = file->integer("text");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, Code::corrupt_file);
  EXPECT_NE(wrong.error().message.find("'text' holds a string"), std::string::npos);
  EXPECT_FALSE(file->integer("huge"));
  EXPECT_FALSE(file->boolean("text"));
  EXPECT_FALSE(file->string("huge"));
  const auto absent = file->real("absent");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, Code::not_found);
  EXPECT_NE(absent.error().message.find("'absent'"), std::string::npos);
}

TEST(Gguf, FindsTensorsAndTheirData) {
  for (const std::uint32_t version : {2u, 3u}) {
    GgufWriter writer;
    writer.version = version;
    writer.tensor("a", {8, 3}, kF32, bytes_of(8 * 3 * 4, 1));
    writer.tensor("b", {5}, kF32, bytes_of(5 * 4, 2));
    const GgufImage image = writer.image();
    const auto file = read(image);
    ASSERT_TRUE(file);
    ASSERT_EQ(file->tensors().size(), 2u);
    const GgufTensor* a = file->tensor("a");
    const GgufTensor* b = file->tensor("b");
    ASSERT_TRUE(a && b);
    EXPECT_EQ(a->k(), 8);
    EXPECT_EQ(a->rows(), 3);
    EXPECT_EQ(b->rows(), 1);
    EXPECT_EQ(a->bytes, 96);
    EXPECT_EQ(a->offset % 32, 0);
    EXPECT_EQ(file->data(*a).size(), 96u);
    EXPECT_EQ(file->data(*a).front(), std::byte{1});
    EXPECT_EQ(file->data(*b).back(), std::byte{2});
    EXPECT_EQ(file->tensor("c"), nullptr);
  }
}

TEST(Gguf, HonoursTheAlignmentKey) {
  GgufWriter writer;
  writer.alignment = 256;
  writer.u32("general.alignment", 256);
  writer.tensor("a", {1}, kF32, bytes_of(4, 1));
  writer.tensor("b", {1}, kF32, bytes_of(4, 2));
  const GgufImage image = writer.image();
  const auto file = read(image);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->tensor("b")->offset % 256, 0);
  EXPECT_EQ(file->data(*file->tensor("b")).front(), std::byte{2});
}

TEST(Gguf, OpensFilesWithUnknownTensorTypes) {
  GgufWriter writer;
  writer.tensor("known", {4}, kF32, bytes_of(16, 1));
  writer.tensor("unknown", {4}, kUnknownType, bytes_of(16, 2));
  const GgufImage image = writer.image();
  const auto file = read(image);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->tensor("unknown")->bytes, 0);
  EXPECT_TRUE(file->data(*file->tensor("unknown")).empty());
}

TEST(Gguf, AFileNeedsNeitherMetadataNorTensors) {
  const auto file = read(GgufWriter().image());
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->tensors().empty());
}

class GgufOnDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::temp_directory_path() /
            (std::string("lathe_gguf_") + info->name() + std::to_string(::getpid()));
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void write(std::span<const std::byte> bytes) const {
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  std::filesystem::path path_;
};

TEST_F(GgufOnDisk, MapsAFile) {
  GgufWriter writer;
  writer.tensor("a", {4}, kF32, bytes_of(16, 7));
  write(writer.image().bytes);
  const auto file = GgufFile::open(path_.string());
  ASSERT_TRUE(file) << file.error().text();
  EXPECT_EQ((*file)->path(), path_.string());
  EXPECT_EQ((*file)->data(*(*file)->tensor("a")).front(), std::byte{7});
}

TEST_F(GgufOnDisk, RefusesWhatIsNotAFileWithContents) {
  auto absent = GgufFile::open(path_.string());
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, Code::not_found);
  write({});
  auto empty = GgufFile::open(path_.string());
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code, Code::corrupt_file);
  auto folder = GgufFile::open(std::filesystem::temp_directory_path().string());
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().code, Code::invalid_argument);
}

}  // namespace
}  // namespace lathe
