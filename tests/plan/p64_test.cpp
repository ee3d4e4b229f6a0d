// Owns the tests of reading and writing sound P64 containers.
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "lathe/plan/gguf.h"
#include "lathe/plan/model_report.h"
#include "lathe/plan/model_spec.h"
#include "lathe/plan/plan.h"
#include "plan/crc32c.h"
#include "plan/p64_metadata.h"
#include "tests/plan/p64_image.h"
#include "tests/plan/tiny_models.h"

namespace lathe {
namespace {

using testing::p64_image;
using testing::TinyModel;

using Bytes = std::vector<std::byte>;

std::shared_ptr<const GgufFile> open(std::span<const std::byte> bytes,
                                     Integrity integrity = Integrity::full) {
  auto file = GgufFile::from_bytes(bytes, "a file", integrity);
  EXPECT_TRUE(file) << file.error().text();
  return file ? *file : nullptr;
}

void expect_same_tensors(const GgufFile& a, const GgufFile& b) {
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (const GgufTensor& tensor : a.tensors()) {
    const GgufTensor* other = b.tensor(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    EXPECT_EQ(other->dims, tensor.dims) << tensor.name;
    EXPECT_EQ(other->ggml_type, tensor.ggml_type) << tensor.name;
    EXPECT_TRUE(std::ranges::equal(a.data(tensor), b.data(*other))) << tensor.name;
  }
}

std::vector<TinyModel> models() {
  TinyModel mixed = testing::fusible(testing::tiny_llama(), Format::q4_0);
  mixed.rope_factors = true;
  return {testing::tiny_llama(), testing::tiny_qwen2(), testing::tiny_qwen3(),
          testing::tiny_gemma3(), mixed};
}

TEST(Crc32c, IsCastagnolis) {
  const std::string_view text = "123456789";
  EXPECT_EQ(crc32c(std::as_bytes(std::span(text))), 0xe3069283u);
  EXPECT_EQ(crc32c({}), 0u);
}

TEST(Crc32c, TheInstructionAndTheTablesAgreeAtEveryLengthAndAddress) {
  Bytes bytes(200);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 + i / 5);
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t size = 0; size + begin <= bytes.size(); ++size) {
      const auto part = std::span(bytes).subspan(begin, size);
      ASSERT_EQ(crc32c(part), crc32c_by_tables(part)) << begin << " + " << size;
    }
  }
}

TEST(P64, EveryFamilyComesBackByteForByte) {
  for (const TinyModel& model : models()) {
    const Bytes gguf = testing::tiny_model(model).bytes;
    for (const std::uint32_t page : {256u, 4096u, 16384u}) {
      const Bytes container = p64_image(gguf, page);
      const auto file = open(container);
      ASSERT_NE(file, nullptr) << model.architecture;
      EXPECT_EQ(file->facts().container, Container::p64);
      EXPECT_EQ(file->facts().version, 4);
      EXPECT_EQ(file->facts().data_offset, 0);
      EXPECT_EQ(container.size() % 64, 0u);
      expect_same_tensors(*open(gguf), *file);
      const auto back = lay_out_gguf(*file);
      ASSERT_TRUE(back) << back.error().text();
      Bytes written = testing::assemble(*back);
      written.resize(gguf.size());  // the writer of the tests leaves the last tensor unpadded
      EXPECT_TRUE(written == gguf) << model.architecture;
    }
  }
}

TEST(P64, PlansOfBothContainersAreTheSame) {
  for (const TinyModel& model : models()) {
    const Bytes gguf = testing::tiny_model(model).bytes;
    const Bytes container = p64_image(gguf, 4096);
    for (const Fusion fusion : {Fusion::none, Fusion::automatic}) {
      PlanOptions options;
      options.fusion = fusion;
      const auto expected = build_plan(*open(gguf), options);
      const auto found = build_plan(*open(container), options);
      ASSERT_TRUE(expected && found);
      EXPECT_EQ(expected->to_text(), found->to_text());
    }
  }
}

TEST(P64, LayersAreOrderedPackedAndScheduled) {
  constexpr std::uint32_t kPage = 4096;
  const Bytes bytes = p64_image(testing::tiny_model(testing::tiny_qwen3()).bytes, kPage);
  const auto header = testing::number_at<p64::Header>(bytes, 0);
  EXPECT_EQ(header.flags, 0x71);
  EXPECT_EQ(header.manifold % 64, 0u);
  const auto hparams = testing::number_at<p64::Hparams>(bytes, header.hparams);
  EXPECT_EQ(hparams.layers, 2u);
  EXPECT_EQ(hparams.architecture, 6u);
  EXPECT_EQ(hparams.architecture_flags, p64::kHasQkNorm);
  std::vector<std::uint16_t> roles;
  std::uint32_t before = 0xffff;
  std::vector<std::uint32_t> begins(hparams.layers + 1);
  for (std::uint32_t i = 0; i < header.tensor_count; ++i) {
    const auto entry =
        testing::number_at<p64::TensorEntry>(bytes, header.tensor_table + std::size_t{64} * i);
    EXPECT_EQ(entry.blob % (entry.layer == before ? 256 : kPage), 0u);
    if (entry.layer != before) begins[entry.layer] = entry.blob;
    before = entry.layer;
    roles.push_back(entry.role);
  }
  const std::vector<std::uint16_t> expected = {7, 2, 0, 1, 3, 8, 4, 5, 6, 7,
                                               2, 0, 1, 3, 8, 4, 5, 6, 9, 11};
  ASSERT_GE(roles.size(), expected.size());
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), roles.begin()));
  EXPECT_TRUE(std::all_of(roles.begin() + 20, roles.end(),
                          [](std::uint16_t role) { return role == p64::kUnknownRole; }));
  for (std::uint32_t layer = 0; layer < hparams.layers; ++layer) {
    const auto row =
        testing::number_at<p64::ScheduleEntry>(bytes, header.role_table + std::size_t{64} * layer);
    EXPECT_EQ(row.begin, begins[layer]);
    EXPECT_EQ(row.tensors, 9);
    EXPECT_EQ(row.roles, 0x1ff);
  }
}

TEST(P64, RecordsAloneGiveTheSameModel) {
  for (TinyModel model : {testing::tiny_llama(), testing::tiny_qwen2(), testing::tiny_qwen3()}) {
    model.epsilon = model.architecture == "llama" ? 1e-5 : 1e-6;  // what such containers imply
    model.rope_factors = model.architecture == "llama";
    model.theta = 50000;
    const Bytes gguf = testing::tiny_model(model).bytes;
    Bytes container = p64_image(gguf, 256);
    testing::drop_metadata(container);
    const auto file = open(container);
    ASSERT_NE(file, nullptr);
    const auto spec = read_model_spec(*file);
    const auto expected = read_model_spec(*open(gguf));
    ASSERT_TRUE(spec) << spec.error().text();
    EXPECT_EQ(spec->architecture, model.architecture);
    EXPECT_EQ(spec->layers, expected->layers);
    EXPECT_EQ(spec->ffn, expected->ffn);
    EXPECT_EQ(spec->kv_heads, expected->kv_heads);
    EXPECT_EQ(spec->head_dim, expected->head_dim);
    EXPECT_EQ(spec->vocab, expected->vocab);
    EXPECT_EQ(spec->epsilon, expected->epsilon);
    EXPECT_EQ(spec->ropes[0].theta, expected->ropes[0].theta);
    EXPECT_EQ(spec->ropes[0].factors, expected->ropes[0].factors);
    EXPECT_EQ(spec->qkv_bias, expected->qkv_bias);
    EXPECT_EQ(spec->context, 4096);
    EXPECT_TRUE(build_plan(*file, PlanOptions{}));
  }
}

// Some writers keep hashes in place of names that have no role. A model without its RoPE factors
// would decode nonsense.
TEST(P64, NamesBehindHashesAreFound) {
  TinyModel model = testing::tiny_llama();
  model.rope_factors = true;
  testing::GgufWriter writer = testing::tiny_model_writer(model);
  // Longer than its hash, so that this fits in its place.
  const std::string placeholder = "a.tensor.that.nothing.here.reads";
  writer.tensor(placeholder, {4}, 0, Bytes(16));
  const Bytes sound = p64_image(writer.image().bytes, 256);
  const std::size_t at = testing::entry_of(sound, placeholder);
  ASSERT_NE(at, 0u);
  const auto hashed = [&](std::string_view name) {
    Bytes container = sound;
    auto entry = testing::number_at<p64::TensorEntry>(container, at);
    entry.name_hash = p64::hash_of(name);
    const std::string stored = p64::hashed_name(entry.name_hash);
    const std::size_t strings = testing::number_at<p64::Header>(container, 0).string_table;
    std::memcpy(container.data() + strings + entry.name, stored.c_str(), stored.size() + 1);
    testing::set_number(container, at, entry);
    testing::seal(container);
    return container;
  };
  for (const char* name : {"blk.0.attn_q.bias", "blk.1.attn_k_norm.weight"}) {
    const Bytes container = hashed(name);
    const auto file = open(container);
    ASSERT_NE(file, nullptr);
    EXPECT_NE(file->tensor(name), nullptr) << name;
  }
  // Found out because it is there already.
  const auto clash = GgufFile::from_bytes(hashed("rope_freqs.weight"), "a file");
  ASSERT_FALSE(clash);
  EXPECT_NE(clash.error().message.find("'rope_freqs.weight' occurs twice"), std::string::npos);
  const std::string other = "no name of a family";
  const Bytes unknown = hashed(other);
  EXPECT_NE(open(unknown)->tensor(p64::hashed_name(p64::hash_of(other))), nullptr);
}

TEST(P64, TheTokenizerSectionHoldsTheVocabulary) {
  testing::GgufWriter writer = testing::tiny_model_writer(testing::tiny_llama());
  std::vector<std::string> tokens;
  for (int i = 0; i < testing::tiny_llama().vocab; ++i) tokens.push_back("t" + std::to_string(i));
  tokens[3] = "<|end|>";
  writer.drop("tokenizer.ggml.tokens");
  writer.strings("tokenizer.ggml.tokens", tokens);
  writer.strings("tokenizer.ggml.merges", {"t 1", "  2"});
  writer.string("tokenizer.ggml.pre", "smollm");
  writer.u32("tokenizer.ggml.bos_token_id", 1);
  writer.u32("tokenizer.ggml.eos_token_id", 2);
  writer.u32("tokenizer.ggml.eot_token_id", 3);
  writer.boolean("tokenizer.ggml.add_bos_token", false);
  Bytes container = p64_image(writer.image().bytes, 256);
  testing::drop_metadata(container);
  const auto file = open(container);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(*file->strings("tokenizer.ggml.tokens"), tokens);
  EXPECT_EQ(*file->strings("tokenizer.ggml.merges"), (std::vector<std::string>{"t 1", "  2"}));
  EXPECT_EQ(file->string("tokenizer.ggml.model").value(), "gpt2");
  EXPECT_EQ(file->string("tokenizer.ggml.pre").value(), "smollm");
  EXPECT_EQ(file->integer("tokenizer.ggml.bos_token_id").value(), 1);
  EXPECT_EQ(file->integer("tokenizer.ggml.eos_token_id").value(), 2);
  EXPECT_EQ(file->integer("tokenizer.ggml.eot_token_id").value(), 3);
  EXPECT_FALSE(file->boolean("tokenizer.ggml.add_bos_token").value());
  EXPECT_EQ((*file->integers("tokenizer.ggml.token_type"))[3], 3);
}

TEST(P64, AModelWithoutTensorsIsAContainer) {
  testing::GgufWriter writer;
  writer.string("general.architecture", "llama");
  const Bytes container = p64_image(writer.image().bytes, 16384);
  const auto file = open(container);
  ASSERT_NE(file, nullptr);
  EXPECT_TRUE(file->tensors().empty());
  const auto report = report_model(*file);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->largest_tensor, "");
  EXPECT_FALSE(report->refusal.empty());
}

TEST(P64, OpensAtAnyAddress) {
  const Bytes container = p64_image(testing::tiny_model(testing::tiny_llama()).bytes, 256);
  for (std::size_t shift = 0; shift < 9; ++shift) {
    Bytes moved(container.size() + shift);
    std::ranges::copy(container, moved.begin() + static_cast<std::ptrdiff_t>(shift));
    const auto file = open(std::span(moved).subspan(shift));
    ASSERT_NE(file, nullptr);
    EXPECT_TRUE(build_plan(*file, PlanOptions{}));
  }
}

TEST(P64, WhatItCannotHoldIsRefusedByName) {
  testing::GgufWriter layers = testing::tiny_model_writer(testing::tiny_llama());
  layers.drop("llama.block_count");
  layers.u32("llama.block_count", 1000);
  const Bytes many = layers.image().bytes;
  const auto refused = lay_out_p64(*open(many), 256);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("1000 layers"), std::string::npos);

  testing::GgufWriter types = testing::tiny_model_writer(testing::tiny_llama());
  types.tensor("blk.0.strange", {4}, 99, Bytes(16));
  const Bytes strange = types.image().bytes;
  const auto unknown = lay_out_p64(*open(strange), 256);
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("'blk.0.strange' has the type 99"), std::string::npos);
}

TEST(ModelReport, CountsWhatIsThere) {
  TinyModel model = testing::tiny_llama();
  model.exceptions["output.weight"] = Format::q8_0;
  model.tied = false;
  const Bytes gguf = testing::tiny_model(model).bytes;
  const auto file = open(gguf);
  const auto report = report_model(*file, 32, Format::f16);
  ASSERT_TRUE(report) << report.error().text();
  EXPECT_EQ(report->container, Container::gguf);
  EXPECT_EQ(report->version, 3);
  EXPECT_EQ(report->file_bytes, std::ssize(gguf));
  EXPECT_EQ(report->data_offset, file->tensors().front().offset);
  EXPECT_EQ(report->tensors, std::ssize(file->tensors()));
  EXPECT_EQ(report->largest_tensor_bytes, 64 * 96 * 4);
  EXPECT_EQ(report->spec.heads, 4);
  EXPECT_EQ(report->kv_bytes, 2 * 2 * 32 * (2 * 16) * 2);  // layers, K and V, positions, f16
  EXPECT_EQ(report->refusal, "");
  ASSERT_EQ(report->types.size(), 2u);
  EXPECT_EQ(report->types[0].name, "f32");
  EXPECT_EQ(report->types[1].bytes, 64 * 80 / 32 * 34);
  EXPECT_EQ(report_model(*file)->context, model.context);
  EXPECT_EQ(report_model(*file, model.context + 1).error().code, Code::invalid_argument);
}

// The same file decodes with another cache: what is said is said of the cache.
TEST(ModelReport, TellsAFaultOfTheCachesFormatFromOneOfTheFile) {
  const Bytes gguf = testing::tiny_model(testing::tiny_llama()).bytes;  // no heads that fuse
  const auto file = open(gguf);
  const auto impossible = report_model(*file, 32, Format::q4_k);
  ASSERT_FALSE(impossible);
  EXPECT_EQ(impossible.error().code, Code::invalid_argument);
  EXPECT_NE(impossible.error().message.find("KV cache in q4_k"), std::string::npos);
  const auto report = report_model(*file, 32, Format::q8_0);
  ASSERT_TRUE(report) << report.error().text();
  EXPECT_TRUE(report->refusal.starts_with("with a KV cache in q8_0: ")) << report->refusal;
  EXPECT_GT(report->kv_bytes, 0);
  const Bytes fused = testing::tiny_model(testing::fusible(testing::tiny_llama())).bytes;
  const auto fits = report_model(*open(fused), 32, Format::q8_0);
  ASSERT_TRUE(fits);
  EXPECT_EQ(fits->refusal, "");
}

}  // namespace
}  // namespace lathe
