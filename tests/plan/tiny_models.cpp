// Owns small models of every family with random weights, as GGUF files in memory.
#include "tests/plan/tiny_models.h"

#include <cmath>
#include <random>

namespace lathe::testing {
namespace {

class ModelWriter {
 public:
  explicit ModelWriter(const TinyModel& model) : model_(model), random_(model.seed) {}

  GgufWriter run() {
    write_keys();
    matrix("token_embd.weight", model_.vocab, model_.hidden, 1);
    for (int layer = 0; layer < model_.layers; ++layer) write_layer(layer);
    norm("output_norm.weight", model_.hidden);
    if (!model_.tied) matrix("output.weight", model_.vocab, model_.hidden);
    if (model_.rope_factors) write_rope_factors();
    return std::move(writer_);
  }

 private:
  std::string key(const char* name) const { return model_.architecture + "." + name; }

  void count(const char* name, int value) {
    writer_.u32(key(name), static_cast<std::uint32_t>(value));
  }
  void real(const char* name, double value) { writer_.f32(key(name), static_cast<float>(value)); }

  void write_keys() {
    writer_.string("general.architecture", model_.architecture);
    writer_.string("general.name", "tiny " + model_.architecture);
    count("block_count", model_.layers);
    count("context_length", model_.context);
    count("embedding_length", model_.hidden);
    count("feed_forward_length", model_.ffn);
    count("attention.head_count", model_.heads);
    count("attention.head_count_kv", model_.kv_heads);
    count("attention.key_length", model_.head_dim);
    count("attention.value_length", model_.head_dim);
    real("attention.layer_norm_rms_epsilon", model_.epsilon);
    real("rope.freq_base", model_.theta);
    count("rope.dimension_count", model_.rotary);
    if (model_.linear_factor != 1) {
      writer_.string(key("rope.scaling.type"), "linear");
      real("rope.scaling.factor", model_.linear_factor);
    }
    if (model_.window > 0) count("attention.sliding_window", model_.window);
  }

  void write_layer(int layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    const int q = model_.heads * model_.head_dim;
    const int kv = model_.kv_heads * model_.head_dim;
    norm(prefix + "attn_norm.weight", model_.hidden);
    matrix(prefix + "attn_q.weight", q, model_.hidden);
    matrix(prefix + "attn_k.weight", kv, model_.hidden);
    matrix(prefix + "attn_v.weight", kv, model_.hidden);
    if (model_.has_qkv_bias()) {
      vector(prefix + "attn_q.bias", q, 0, 0.5f);
      vector(prefix + "attn_k.bias", kv, 0, 0.5f);
      vector(prefix + "attn_v.bias", kv, 0, 0.5f);
    }
    if (model_.has_qk_norm()) {
      norm(prefix + "attn_q_norm.weight", model_.head_dim);
      norm(prefix + "attn_k_norm.weight", model_.head_dim);
    }
    matrix(prefix + "attn_output.weight", model_.hidden, q);
    if (model_.is_gemma()) norm(prefix + "post_attention_norm.weight", model_.hidden);
    norm(prefix + "ffn_norm.weight", model_.hidden);
    matrix(prefix + "ffn_gate.weight", model_.ffn, model_.hidden);
    matrix(prefix + "ffn_up.weight", model_.ffn, model_.hidden);
    matrix(prefix + "ffn_down.weight", model_.hidden, model_.ffn);
    if (model_.is_gemma()) norm(prefix + "post_ffw_norm.weight", model_.hidden);
  }

  std::vector<float> values(std::int64_t count, float mean, float deviation) {
    std::normal_distribution<float> normal(mean, deviation);
    std::vector<float> out(static_cast<std::size_t>(count));
    for (float& value : out) value = normal(random_);
    return out;
  }

  void tensor(const std::string& name, std::vector<std::uint64_t> dims, Format format,
              const std::vector<float>& values) {
    const FormatRow& format_row = row(format);
    const auto count = static_cast<std::int64_t>(values.size());
    std::vector<std::byte> data(static_cast<std::size_t>(row_bytes(format, count)));
    format_row.pack(values.data(), count, data.data());
    writer_.tensor(name, std::move(dims), format_row.ggml_type, std::move(data));
  }

  void matrix(const std::string& name, int n, int k, float deviation = 0) {
    if (deviation == 0) deviation = 1 / std::sqrt(static_cast<float>(k));
    const auto exception = model_.exceptions.find(name);
    const Format format = exception == model_.exceptions.end() ? model_.weights : exception->second;
    tensor(name, {static_cast<std::uint64_t>(k), static_cast<std::uint64_t>(n)}, format,
           values(std::int64_t{n} * k, 0, deviation));
  }

  void vector(const std::string& name, int k, float mean, float deviation) {
    tensor(name, {static_cast<std::uint64_t>(k)}, Format::f32, values(k, mean, deviation));
  }

  void norm(const std::string& name, int k) { vector(name, k, 1, 0.2f); }

  void write_rope_factors() {
    std::vector<float> factors;
    for (int pair = 0; pair < model_.rotary / 2; ++pair) {
      factors.push_back(model_.rope_factor(pair));
    }
    tensor("rope_freqs.weight", {factors.size()}, Format::f32, factors);
  }

  const TinyModel& model_;
  std::mt19937 random_;
  GgufWriter writer_;
};

}  // namespace

TinyModel tiny_llama() {
  TinyModel model;
  model.tied = false;
  model.rope_factors = true;
  model.theta = 500000;
  return model;
}

TinyModel tiny_qwen2() {
  TinyModel model;
  model.architecture = "qwen2";
  model.theta = 1000000;
  model.epsilon = 1e-6;
  model.heads = 6;
  return model;
}

TinyModel tiny_qwen3() {
  TinyModel model;
  model.architecture = "qwen3";
  model.theta = 1000000;
  model.epsilon = 1e-6;
  model.head_dim = 32;
  model.rotary = 32;
  return model;
}

TinyModel tiny_gemma3() {
  TinyModel model;
  model.architecture = "gemma3";
  model.layers = 7;
  model.theta = 1000000;
  model.epsilon = 1e-6;
  model.head_dim = 32;
  model.rotary = 32;
  model.kv_heads = 1;
  model.window = 5;
  model.linear_factor = 8;
  return model;
}

std::vector<TinyModel> all_families() {
  return {tiny_llama(), tiny_qwen2(), tiny_qwen3(), tiny_gemma3()};
}

TinyModel fusible(TinyModel model, Format weights) {
  model.weights = weights;
  model.head_dim = model.rotary = 32;
  model.heads = 4;
  model.kv_heads = 2;
  model.hidden = row(weights).block == 256 ? 256 : 64;
  model.ffn = row(weights).block == 256 ? 512 : 96;
  if (row(weights).block == 256) model.heads = 8;
  if (model.layers > 2) model.layers = 7;
  return model;
}

std::vector<FileMix> file_mixes() {
  return {{"Q2_K",
           Format::q2_k,
           {{"blk.0.attn_v.weight", Format::q4_k},
            {"blk.1.attn_v.weight", Format::q3_k},
            {"blk.0.attn_output.weight", Format::q3_k},
            {"blk.1.attn_output.weight", Format::q3_k},
            {"blk.0.ffn_down.weight", Format::q3_k},
            {"blk.1.ffn_down.weight", Format::q3_k},
            {"output.weight", Format::q6_k}}},
          {"Q3_K_M",
           Format::q3_k,
           {{"blk.0.attn_v.weight", Format::q5_k},
            {"blk.1.attn_v.weight", Format::q4_k},
            {"blk.0.attn_output.weight", Format::q4_k},
            {"blk.1.attn_output.weight", Format::q4_k},
            {"blk.0.ffn_down.weight", Format::q5_k},
            {"blk.1.ffn_down.weight", Format::q4_k},
            {"output.weight", Format::q6_k}}},
          {"IQ4_XS",
           Format::iq4_xs,
           {{"blk.0.attn_v.weight", Format::q5_k},
            {"blk.1.attn_v.weight", Format::q5_k},
            {"blk.0.ffn_down.weight", Format::q5_k},
            {"output.weight", Format::q6_k}}},
          {"IQ4_NL",
           Format::iq4_nl,
           {{"blk.0.attn_v.weight", Format::q5_k},
            {"blk.1.attn_v.weight", Format::q5_k},
            {"blk.0.ffn_down.weight", Format::q5_k},
            {"output.weight", Format::q6_k}}},
          {"MXFP4",
           Format::mxfp4,
           {{"blk.0.attn_v.weight", Format::q8_0},
            {"blk.1.attn_k.weight", Format::bf16},
            {"token_embd.weight", Format::q8_0},
            {"output.weight", Format::q8_0}}}};
}

GgufWriter tiny_model_writer(const TinyModel& model) {
  return ModelWriter(model).run();
}

GgufImage tiny_model(const TinyModel& model) {
  return tiny_model_writer(model).image();
}

}  // namespace lathe::testing
