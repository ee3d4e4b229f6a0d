// Owns the table of models, and the file that a plan takes them from.
#include "bench/kernels/models.h"

#include <fmt/format.h>

#include <map>
#include <vector>

namespace lathe::bench::kernels {

namespace {

constexpr Model kModels[] = {
    {"llama-3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 500000, 1e-5, false},
    {"llama-3.2-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, 500000, 1e-5, true},
    {"llama-3.2-3b", "llama", 28, 3072, 8192, 24, 8, 128, 128256, 131072, 500000, 1e-5, true},
    {"qwen3-8b", "qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 40960, 1000000, 1e-6, false},
    {"smollm2-135m", "llama", 30, 576, 1536, 9, 3, 64, 49152, 8192, 100000, 1e-5, true},
};

constexpr const char* kMixName = "q4_k_m";

// Layers in which q4_k_m gives more bits to values and down projections: the first and the last
// eighth, and every third of the others.
bool has_more_bits(int layer, int layers) {
  const int eighth = layers / 8;
  return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

Format mixed_format(const Model& model, std::string_view tensor, int layer) {
  if (tensor == "output" || (tensor == "token_embd" && model.tied)) return Format::q6_k;
  const bool precious = tensor == "attn_v" || tensor == "ffn_down";
  return precious && has_more_bits(layer, model.layers) ? Format::q6_k : Format::q4_k;
}

Format for_short_rows(Format format) {
  switch (format) {
    case Format::q4_k:
      return Format::q5_0;
    case Format::q5_k:
      return Format::q5_1;
    case Format::q6_k:
      return Format::q8_0;
    default:
      return Format::iq4_nl;
  }
}

class ShapeFile final : public GgufFile {
 public:
  ShapeFile(const Model& model, const Mix& mix) : model_(model), mix_(mix), path_(model.name) {
    add_values();
    add_tensors();
  }

  const std::string& path() const override { return path_; }
  std::span<const GgufTensor> tensors() const override { return tensors_; }
  const GgufTensor* tensor(std::string_view name) const override {
    for (const GgufTensor& tensor : tensors_)
      if (tensor.name == name) return &tensor;
    return nullptr;
  }
  std::span<const std::byte> data(const GgufTensor&) const override { return {}; }
  const GgufValue* value(std::string_view key) const override {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }

 private:
  void set(const char* name, GgufValue value) {
    values_.emplace(std::string(model_.architecture) + "." + name, std::move(value));
  }

  void add_values() {
    values_.emplace("general.architecture", std::string(model_.architecture));
    values_.emplace("general.name", std::string(model_.name));
    const auto count = [&](const char* name, int value) { set(name, std::int64_t{value}); };
    count("block_count", model_.layers);
    count("context_length", model_.context);
    count("embedding_length", model_.hidden);
    count("feed_forward_length", model_.ffn);
    count("attention.head_count", model_.heads);
    count("attention.head_count_kv", model_.kv_heads);
    count("attention.key_length", model_.head_dim);
    count("attention.value_length", model_.head_dim);
    count("rope.dimension_count", model_.head_dim);
    set("rope.freq_base", model_.theta);
    set("attention.layer_norm_rms_epsilon", model_.epsilon);
  }

  void add(const std::string& name, Format format, std::vector<std::int64_t> dims) {
    GgufTensor tensor{.name = name, .ggml_type = row(format).ggml_type, .dims = std::move(dims)};
    tensor.bytes = tensor.rows() * row_bytes(format, tensor.k());
    tensors_.push_back(std::move(tensor));
  }

  void matrix(int layer, const char* label, int n, int k) {
    add(name(layer, label), stored_format(model_, mix_, label, layer, k), {k, n});
  }
  void norm(int layer, const char* label, int k) { add(name(layer, label), Format::f32, {k}); }
  static std::string name(int layer, const char* label) {
    return layer < 0 ? fmt::format("{}.weight", label)
                     : fmt::format("blk.{}.{}.weight", layer, label);
  }

  void add_tensors() {
    const int queries = model_.heads * model_.head_dim, kv = model_.kv_heads * model_.head_dim;
    matrix(-1, "token_embd", model_.vocab, model_.hidden);
    norm(-1, "output_norm", model_.hidden);
    if (!model_.tied) matrix(-1, "output", model_.vocab, model_.hidden);
    for (int layer = 0; layer < model_.layers; ++layer) {
      norm(layer, "attn_norm", model_.hidden);
      matrix(layer, "attn_q", queries, model_.hidden);
      matrix(layer, "attn_k", kv, model_.hidden);
      matrix(layer, "attn_v", kv, model_.hidden);
      if (std::string_view(model_.architecture) == "qwen3") {
        norm(layer, "attn_q_norm", model_.head_dim);
        norm(layer, "attn_k_norm", model_.head_dim);
      }
      matrix(layer, "attn_output", model_.hidden, queries);
      norm(layer, "ffn_norm", model_.hidden);
      matrix(layer, "ffn_gate", model_.ffn, model_.hidden);
      matrix(layer, "ffn_up", model_.ffn, model_.hidden);
      matrix(layer, "ffn_down", model_.hidden, model_.ffn);
    }
  }

  const Model& model_;
  const Mix mix_;
  const std::string path_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, GgufValue, std::less<>> values_;
};

}  // namespace

std::span<const Model> models() {
  return kModels;
}

Result<const Model*> model_by_name(std::string_view name) {
  std::string known;
  for (const Model& model : kModels) {
    if (name == model.name) return &model;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", model.name);
  }
  return Error{Code::not_found, fmt::format("there is no model '{}'; known: {}", name, known), {}};
}

Result<Mix> mix_by_name(std::string_view name) {
  if (name == kMixName) return Mix{};
  const Result<Format> format = format_by_name(name);
  if (format) return Mix{*format};
  return Error{
      Code::not_found,
      fmt::format("there is no format '{}'; known are {} and those of weights", name, kMixName),
      {}};
}

Format stored_format(const Model& model, const Mix& mix, std::string_view tensor, int layer,
                     int k) {
  const Format format = mix.all ? *mix.all : mixed_format(model, tensor, layer);
  return k % row(format).block == 0 ? format : for_short_rows(format);
}

std::shared_ptr<const GgufFile> file_of(const Model& model, const Mix& mix) {
  return std::make_shared<ShapeFile>(model, mix);
}

}  // namespace lathe::bench::kernels
