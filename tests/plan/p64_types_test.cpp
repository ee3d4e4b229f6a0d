// Owns the tests of the types of tensors that only P64 containers have.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "lathe/plan/model_report.h"
#include "lathe/plan/plan.h"
#include "tests/plan/p64_image.h"
#include "tests/plan/tiny_models.h"

namespace lathe {
namespace {

using testing::p64_image;
using testing::TinyModel;

using Bytes = std::vector<std::byte>;

std::shared_ptr<const GgufFile> open(std::span<const std::byte> bytes) {
  auto file = GgufFile::from_bytes(bytes, "a file", Integrity::full);
  EXPECT_TRUE(file) << file.error().text();
  return file ? *file : nullptr;
}

float half_at(std::span<const std::byte> bytes, std::size_t offset) {
  return f16_to_f32(testing::number_at<std::uint16_t>(bytes, offset));
}

// The oracle is the value of the Q4_K block; each of two products has been rounded to 11 bits.
TEST(P64Types, Q4KSoaHoldsTheValuesOfQ4K) {
  TinyModel model = testing::fusible(testing::tiny_llama(), Format::q4_k);
  const Bytes gguf = testing::tiny_model(model).bytes;
  const Bytes container = p64_image(gguf, 256, P64Weights::q4_k_soa);
  EXPECT_EQ(testing::number_at<p64::Header>(container, 0).flags, 0x79);
  const auto source = open(gguf);
  const auto file = open(container);
  ASSERT_NE(file, nullptr);
  int checked = 0;
  for (const GgufTensor& tensor : file->tensors()) {
    if (tensor.ggml_type != p64::kTypeQ4KSoa) continue;
    const std::span<const std::byte> soa = file->data(tensor);
    std::vector<float> expected(static_cast<std::size_t>(tensor.k() * tensor.rows()));
    row(Format::q4_k)
        .unpack(source->data(*source->tensor(tensor.name)).data(), std::ssize(expected),
                expected.data());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::size_t block = i / 256 * 160;
      const std::size_t part = i % 256 / 32;
      const int byte = std::to_integer<int>(soa[block + part / 2 * 32 + i % 32]);
      const int nibble = part % 2 == 0 ? byte & 15 : byte >> 4;
      const double d = half_at(soa, block + 128 + 2 * part);
      const double m = half_at(soa, block + 144 + 2 * part);
      const double bound = (std::abs(d) * nibble + std::abs(m)) * 0x1p-11 + 16 * 0x1p-25;
      ASSERT_NEAR(d * nibble - m, expected[i], bound) << tensor.name << " value " << i;
    }
    ++checked;
  }
  EXPECT_EQ(checked, 2 * 7);
  const auto plan = build_plan(*file, PlanOptions{});
  ASSERT_TRUE(plan) << plan.error().text();
}

TEST(P64Types, TernaryHoldsTheNextOfThreeValues) {
  TinyModel model = testing::tiny_llama();
  model.weights = Format::q8_0;
  const Bytes gguf = testing::tiny_model(model).bytes;
  const Bytes container = p64_image(gguf, 256, P64Weights::ternary_ffn);
  EXPECT_EQ(testing::number_at<p64::Header>(container, 0).flags, 0x75);
  const auto source = open(gguf);
  const auto file = open(container);
  ASSERT_NE(file, nullptr);
  int checked = 0;
  for (const GgufTensor& tensor : file->tensors()) {
    EXPECT_EQ(tensor.ggml_type == p64::kTypeTernary,
              tensor.name.find(".ffn_") != std::string::npos &&
                  tensor.name.find("norm") == std::string::npos);
    if (tensor.ggml_type != p64::kTypeTernary) continue;
    const std::span<const std::byte> packed = file->data(tensor);
    std::vector<float> values(static_cast<std::size_t>(tensor.k() * tensor.rows()));
    row(Format::q8_0)
        .unpack(source->data(*source->tensor(tensor.name)).data(), std::ssize(values),
                values.data());
    double sum = 0;
    for (const float value : values) sum += std::abs(static_cast<double>(value));
    const auto scale = testing::number_at<float>(packed, 0);
    EXPECT_NEAR(scale, sum / static_cast<double>(values.size()), 1e-6 * scale);
    constexpr int kPlaces[] = {1, 3, 9, 27, 81};
    int most[3] = {};
    for (std::size_t i = 0; i < values.size(); ++i) {
      const int digit = std::to_integer<int>(packed[4 + i / 5]) / kPlaces[i % 5] % 3;
      const double distance = std::abs(values[i] / static_cast<double>(scale) - (digit - 1));
      for (const int other : {-1, 0, 1})
        ASSERT_LE(distance, std::abs(values[i] / static_cast<double>(scale) - other) + 1e-5);
      ++most[digit];
    }
    for (const int count : most) EXPECT_GT(count, 0);
    ++checked;
  }
  EXPECT_EQ(checked, 2 * 3);
}

// Makes a tensor one of a type that only P64 has.
void retype(Bytes& container, std::string_view name, std::uint16_t type, std::uint32_t bytes,
            p64::Flag flag) {
  const std::size_t at = testing::entry_of(container, name);
  auto entry = testing::number_at<p64::TensorEntry>(container, at);
  ASSERT_LE(bytes, entry.blob_bytes);
  entry.type = type;
  entry.blob_bytes = bytes;
  testing::set_number(container, at, entry);
  auto header = testing::number_at<p64::Header>(container, 0);
  header.flags = static_cast<std::uint16_t>(header.flags | flag);
  testing::set_number(container, 0, header);
  testing::seal(container);
}

TEST(P64Types, TernaryTensorsAreReportedAndRefusedByName) {
  TinyModel model = testing::tiny_llama();
  Bytes container = p64_image(testing::tiny_model(model).bytes, 256);
  const std::uint32_t bytes = 4 + (64 * 96 + 4) / 5;
  retype(container, "blk.1.ffn_up.weight", 1158, bytes, p64::kTernary);
  const auto file = open(container);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->tensor("blk.1.ffn_up.weight")->bytes, bytes);
  EXPECT_EQ(file->data(*file->tensor("blk.1.ffn_up.weight")).size(), bytes);
  const auto report = report_model(*file);
  ASSERT_TRUE(report) << report.error().text();
  const auto type = std::ranges::find(report->types, "ternary_base3", &ModelReport::Type::name);
  ASSERT_NE(type, report->types.end());
  EXPECT_EQ(type->tensors, 1);
  EXPECT_EQ(type->bytes, bytes);
  const auto plan = build_plan(*file, PlanOptions{});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, Code::unsupported);
  for (const char* part : {"blk.1.ffn_up.weight", "ternary_base3"})
    EXPECT_NE(plan.error().message.find(part), std::string::npos) << plan.error().message;
  EXPECT_EQ(report->refusal, plan.error().message);
  const auto back = lay_out_gguf(*file);
  ASSERT_FALSE(back);
  EXPECT_NE(back.error().message.find("stored as ternary_base3"), std::string::npos);
}

TEST(P64Types, WeightsThatReplaceNothingAreRefused) {
  testing::GgufWriter empty;
  empty.string("general.architecture", "llama");
  const Bytes nothing = empty.image().bytes;
  const Bytes gguf = testing::tiny_model(testing::tiny_llama()).bytes;
  for (const auto& [bytes, weights] :
       {std::pair(gguf, P64Weights::q4_k_soa), std::pair(nothing, P64Weights::ternary_ffn)}) {
    const auto refused = lay_out_p64(*open(bytes), 256, weights);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::invalid_argument);
    EXPECT_NE(refused.error().message.find("matrices"), std::string::npos);
  }
}

TEST(P64Types, SizesOfItsOwnTypesAreChecked) {
  TinyModel model = testing::tiny_llama();
  model.hidden = 256;
  model.head_dim = model.rotary = 64;
  for (const std::uint32_t bytes : {160u * 96 - 1, 160u * 96, 160u * 96 + 1}) {
    Bytes container = p64_image(testing::tiny_model(model).bytes, 256);
    retype(container, "blk.0.ffn_gate.weight", 112, bytes, p64::kQ4KSoa);
    const auto file = GgufFile::from_bytes(container, "a file");
    EXPECT_EQ(bool(file), bytes == 160 * 96);
    if (!file) {
      EXPECT_NE(file.error().message.find("q4_k_soa"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace lathe
