// Owns the tests of reading hyperparameters: each family's spec, defaults, and refusals by name.
#include "lathe/plan/model_spec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/plan/tiny_models.h"

namespace lathe {
namespace {

using testing::GgufType;
using testing::GgufWriter;
using testing::TinyModel;

Result<ModelSpec> read(const GgufWriter& writer) {
  const auto image = writer.image();
  const auto file = GgufFile::from_bytes(image.bytes, "tiny.gguf");
  EXPECT_TRUE(file) << (file ? "" : file.error().text());
  return read_model_spec(**file);
}

ModelSpec read_valid(const GgufWriter& writer) {
  auto spec = read(writer);
  EXPECT_TRUE(spec) << (spec ? "" : spec.error().text());
  return spec ? *spec : ModelSpec{};
}

ModelSpec read_valid(const TinyModel& model) {
  return read_valid(testing::tiny_model_writer(model));
}

using Change = std::function<void(GgufWriter&)>;

void expect_refused(const TinyModel& model, const Change& change, Code code,
                    std::string_view part) {
  GgufWriter writer = testing::tiny_model_writer(model);
  change(writer);
  const auto spec = read(writer);
  ASSERT_FALSE(spec) << "accepted, but should name: " << part;
  EXPECT_EQ(spec.error().code, code) << spec.error().message;
  EXPECT_NE(spec.error().message.find(part), std::string::npos)
      << "got: " << spec.error().message << "\nwanted: " << part;
}

TEST(ModelSpec, Llama) {
  TinyModel model = testing::tiny_llama();
  model.rotary = 8;
  const ModelSpec spec = read_valid(model);
  EXPECT_EQ(spec.architecture, "llama");
  EXPECT_EQ(spec.name, "tiny llama");
  EXPECT_EQ(spec.layers, 2);
  EXPECT_EQ(spec.hidden, 64);
  EXPECT_EQ(spec.ffn, 96);
  EXPECT_EQ(spec.heads, 4);
  EXPECT_EQ(spec.kv_heads, 2);
  EXPECT_EQ(spec.head_dim, 16);
  EXPECT_EQ(spec.vocab, 80);
  EXPECT_EQ(spec.context, 64);
  EXPECT_EQ(spec.epsilon, 1e-5f);
  EXPECT_EQ(spec.embedding_scale, 1);
  EXPECT_EQ(spec.attention_scale, 0.25f);
  EXPECT_EQ(spec.activation, Activation::silu);
  EXPECT_FALSE(spec.tied_head || spec.qkv_bias || spec.qk_norm || spec.post_norms);
  ASSERT_EQ(spec.ropes.size(), 1u);
  EXPECT_EQ(spec.ropes[0].theta, 500000);
  EXPECT_EQ(spec.ropes[0].dims, 8);
  EXPECT_EQ(spec.ropes[0].pairing, Pairing::adjacent);
  EXPECT_EQ(spec.ropes[0].freq_scale, 1);
  EXPECT_EQ(spec.ropes[0].factors, (std::vector<float>{1, 1.5f, 2, 2.5f}));
  ASSERT_EQ(spec.per_layer.size(), 2u);
  EXPECT_EQ(spec.per_layer[1].window, 0);
}

TEST(ModelSpec, LlamaWithBiasesAndWindow) {
  TinyModel model = testing::tiny_llama();
  model.window = 12;
  GgufWriter writer = testing::tiny_model_writer(model);
  writer.tensor("blk.0.attn_q.bias", {64}, 0, std::vector<std::byte>(256));
  const ModelSpec spec = read_valid(writer);
  EXPECT_TRUE(spec.qkv_bias);
  EXPECT_EQ(spec.per_layer[0].window, 12);
  EXPECT_EQ(spec.per_layer[1].window, 12);
  model.window = model.context;
  EXPECT_EQ(read_valid(model).per_layer[0].window, 0);
}

TEST(ModelSpec, Qwen2) {
  const ModelSpec spec = read_valid(testing::tiny_qwen2());
  EXPECT_EQ(spec.architecture, "qwen2");
  EXPECT_TRUE(spec.qkv_bias && spec.tied_head);
  EXPECT_FALSE(spec.qk_norm || spec.post_norms);
  EXPECT_EQ(spec.ropes[0].pairing, Pairing::halves);
  EXPECT_EQ(spec.ropes[0].theta, 1000000);
}

TEST(ModelSpec, Qwen3) {
  const ModelSpec spec = read_valid(testing::tiny_qwen3());
  EXPECT_EQ(spec.architecture, "qwen3");
  EXPECT_TRUE(spec.qk_norm && spec.tied_head);
  EXPECT_FALSE(spec.qkv_bias || spec.post_norms);
  EXPECT_EQ(spec.head_dim, 32);
  EXPECT_EQ(spec.ropes[0].pairing, Pairing::halves);
}

TEST(ModelSpec, Gemma3) {
  const ModelSpec spec = read_valid(testing::tiny_gemma3());
  EXPECT_EQ(spec.embedding_scale, 8);
  EXPECT_EQ(spec.activation, Activation::gelu_tanh);
  EXPECT_TRUE(spec.qk_norm && spec.post_norms && spec.tied_head);
  EXPECT_EQ(spec.attention_scale, static_cast<float>(1 / std::sqrt(32.0)));
  ASSERT_EQ(spec.ropes.size(), 2u);
  for (std::size_t i = 0; i < 7; ++i) {
    const LayerSpec& layer = spec.per_layer[i];
    const RopeSpec& rope = spec.ropes[static_cast<std::size_t>(layer.rope)];
    EXPECT_EQ(layer.window, i == 5 ? 0 : 5) << i;
    EXPECT_EQ(rope.theta, i == 5 ? 1000000 : 10000) << i;
    EXPECT_EQ(rope.freq_scale, i == 5 ? 1.0 / 8 : 1) << i;
  }
}

TEST(ModelSpec, Gemma3LocalKeys) {
  GgufWriter writer = testing::tiny_model_writer(testing::tiny_gemma3());
  writer.u32("gemma3.attention.sliding_window_pattern", 2);
  writer.f32("gemma3.rope.freq_base_swa", 5000);
  const ModelSpec spec = read_valid(writer);
  EXPECT_EQ(spec.per_layer[0].window, 5);
  EXPECT_EQ(spec.per_layer[1].window, 0);
  EXPECT_EQ(spec.ropes[static_cast<std::size_t>(spec.per_layer[0].rope)].theta, 5000);

  TinyModel global = testing::tiny_gemma3();
  global.window = 0;
  const ModelSpec all_global = read_valid(global);
  EXPECT_EQ(all_global.ropes.size(), 1u);
  EXPECT_EQ(all_global.per_layer[0].window, 0);
}

TEST(ModelSpec, Gemma3OfSixtyTwoLayersScalesByItsHiddenSize) {
  TinyModel model = testing::tiny_gemma3();
  model.layers = 62;
  EXPECT_EQ(read_valid(model).attention_scale, 0.25f);  // 1 / sqrt(64 / 4)
}

TEST(ModelSpec, MissingKeysHaveDefaults) {
  GgufWriter writer = testing::tiny_model_writer(testing::tiny_llama());
  for (const char* key : {"general.name", "llama.attention.head_count_kv", "llama.rope.freq_base",
                          "llama.attention.key_length", "llama.attention.value_length",
                          "llama.rope.dimension_count"}) {
    writer.drop(key);
  }
  const ModelSpec spec = read_valid(writer);
  EXPECT_EQ(spec.name, "");
  EXPECT_EQ(spec.kv_heads, 4);
  EXPECT_EQ(spec.head_dim, 16);
  EXPECT_EQ(spec.ropes[0].theta, 10000);
  EXPECT_EQ(spec.ropes[0].dims, 16);
}

TEST(ModelSpec, KeysWithoutADefaultAreNamedWhenMissing) {
  for (const char* key :
       {"llama.block_count", "llama.embedding_length", "llama.feed_forward_length",
        "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon",
        "llama.context_length", "general.architecture", "token_embd.weight"}) {
    expect_refused(
        testing::tiny_llama(), [&](GgufWriter& writer) { writer.drop(key); }, Code::not_found, key);
  }
}

TEST(ModelSpec, NeutralKeysAreAccepted) {
  GgufWriter writer = testing::tiny_model_writer(testing::tiny_llama());
  writer.u32("llama.expert_count", 0);
  writer.f32("llama.final_logit_softcapping", 0);
  writer.f32("llama.logit_scale", 1);
  writer.boolean("llama.attention.causal", true);
  writer.string("llama.rope.scaling.type", "none");
  writer.f32("llama.rope.scaling.factor", 4);
  EXPECT_EQ(read_valid(writer).ropes[0].freq_scale, 1);
}

TEST(ModelSpec, PerLayerArraysAreAcceptedWhenTheyAgree) {
  GgufWriter writer = testing::tiny_model_writer(testing::tiny_llama());
  writer.drop("llama.attention.head_count_kv");
  writer.array("llama.attention.head_count_kv", GgufType::i32, std::vector<std::int32_t>{2, 2});
  EXPECT_EQ(read_valid(writer).kv_heads, 2);
  expect_refused(
      testing::tiny_llama(),
      [](GgufWriter& changed) {
        changed.drop("llama.feed_forward_length");
        changed.array("llama.feed_forward_length", GgufType::i32,
                      std::vector<std::int32_t>{96, 64});
      },
      Code::unsupported, "'llama.feed_forward_length' differs from layer to layer");
}

TEST(ModelSpec, OldLinearScalingKey) {
  GgufWriter writer = testing::tiny_model_writer(testing::tiny_llama());
  writer.f32("llama.rope.scale_linear", 4);
  EXPECT_EQ(read_valid(writer).ropes[0].freq_scale, 0.25);
}

TEST(ModelSpec, WhatNoFamilyCoversIsRefused) {
  const TinyModel llama = testing::tiny_llama();
  const auto with_f32 = [](const char* key, float value) {
    return [=](GgufWriter& writer) { writer.f32(key, value); };
  };
  const auto unsupported = [&](const Change& change, std::string_view part) {
    expect_refused(llama, change, Code::unsupported, part);
  };
  unsupported([](GgufWriter& writer) { writer.u32("llama.expert_count", 8); },
              "mixture-of-experts");
  unsupported(with_f32("llama.final_logit_softcapping", 30), "'llama.final_logit_softcapping'");
  unsupported(with_f32("llama.attn_logit_softcapping", 50), "'llama.attn_logit_softcapping'");
  unsupported(with_f32("llama.attention.scale", 0.5), "'llama.attention.scale'");
  unsupported(with_f32("llama.attention.clamp_kqv", 8), "'llama.attention.clamp_kqv'");
  unsupported(with_f32("llama.rope.scaling.attn_factor", 2), "'llama.rope.scaling.attn_factor'");
  unsupported([](GgufWriter& writer) { writer.string("llama.rope.scaling.type", "yarn"); },
              "RoPE scaling 'yarn' (key 'llama.rope.scaling.type')");
  unsupported([](GgufWriter& writer) { writer.boolean("llama.attention.causal", false); },
              "'llama.attention.causal'");
  unsupported(
      [](GgufWriter& writer) {
        writer.drop("llama.attention.value_length");
        writer.u32("llama.attention.value_length", 32);
      },
      "'llama.attention.value_length'");
  unsupported(
      [](GgufWriter& writer) {
        writer.drop("general.architecture");
        writer.string("general.architecture", "mamba");
      },
      "known: llama, qwen2, qwen3, gemma3");
  expect_refused(
      testing::tiny_qwen2(),
      [](GgufWriter& writer) { writer.u32("qwen2.attention.sliding_window", 16); },
      Code::unsupported, "'qwen2.attention.sliding_window'");
}

TEST(ModelSpec, ContradictionsAreRefused) {
  const auto set = [](const char* key, std::uint32_t value) {
    return [=](GgufWriter& writer) {
      writer.drop(key);
      writer.u32(key, value);
    };
  };
  const auto corrupt = [&](const Change& change, std::string_view part) {
    expect_refused(testing::tiny_llama(), change, Code::corrupt_file, part);
  };
  corrupt(set("llama.block_count", 0), "'llama.block_count' is 0");
  corrupt(set("llama.block_count", 1u << 29), "only");
  corrupt(set("llama.block_count", 0xffffffff), "'llama.block_count' is 4294967295");
  corrupt(set("llama.attention.head_count_kv", 3), "3 KV heads");
  corrupt(set("llama.attention.head_count", 1u << 30), "exceed the limit");
  corrupt(set("llama.embedding_length", 32), "'token_embd.weight' has rows of 64 values");
  corrupt(set("llama.rope.dimension_count", 15), "'llama.rope.dimension_count' is 15");
  corrupt(set("llama.rope.dimension_count", 32), "'llama.rope.dimension_count' is 32");
  corrupt(set("llama.rope.dimension_count", 8), "RoPE rotates 4 pairs");
  corrupt([](GgufWriter& writer) { writer.f32("llama.rope.scaling.factor", -1); },
          "'llama.rope.scaling.factor' is -1");
  corrupt(
      [](GgufWriter& writer) {
        writer.drop("llama.rope.freq_base");
        writer.f32("llama.rope.freq_base", NAN);
      },
      "'llama.rope.freq_base' is nan");
  corrupt(
      [](GgufWriter& writer) {
        writer.drop("llama.attention.layer_norm_rms_epsilon");
        writer.f32("llama.attention.layer_norm_rms_epsilon", -1);
      },
      "epsilon");
  corrupt(
      [](GgufWriter& writer) {
        writer.strings("tokenizer.ggml.tokens", {"a", "b"});
      },
      "the vocabulary has 2 tokens, but 'token_embd.weight' has 80 rows");
  corrupt(
      [](GgufWriter& writer) {
        writer.drop("rope_freqs.weight");
        writer.tensor("rope_freqs.weight", {8}, 0, std::vector<std::byte>(32));
      },
      "value 0 of tensor 'rope_freqs.weight' is 0");
}

TEST(ModelSpec, TheTableNamesEachFamilyOnce) {
  std::vector<std::string> names;
  for (const ModelFamily& family : model_families()) {
    names.emplace_back(family.architecture);
    EXPECT_NE(std::string(family.summary), "");
  }
  EXPECT_EQ(names, (std::vector<std::string>{"llama", "qwen2", "qwen3", "gemma3"}));
}

}  // namespace
}  // namespace lathe
