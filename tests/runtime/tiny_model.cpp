// Owns the writing of the tiny model.
#include "tests/runtime/tiny_model.h"

#include <cmath>
#include <random>
#include <string>

#include "tests/plan/gguf_writer.h"

namespace lathe::testing {
namespace {

// The image's bytes live as long as the file that views them.
struct OwnedFile {
  GgufImage image;
  std::shared_ptr<const GgufFile> file;
};

class Builder {
 public:
  Builder(const TinyModel& model) : model_(model), random_(model.seed) {}

  std::shared_ptr<const GgufFile> build() {
    describe();
    const int q = model_.heads * model_.head_dim;
    const int kv = model_.kv_heads * model_.head_dim;
    matrix("token_embd.weight", model_.vocab, model_.hidden, model_.weights, 1.0);
    for (int i = 0; i < model_.layers; ++i) {
      const std::string prefix = "blk." + std::to_string(i) + ".";
      norm(prefix + "attn_norm.weight");
      matrix(prefix + "attn_q.weight", q, model_.hidden, model_.weights);
      matrix(prefix + "attn_k.weight", kv, model_.hidden, model_.weights);
      matrix(prefix + "attn_v.weight", kv, model_.hidden, model_.head);
      matrix(prefix + "attn_output.weight", model_.hidden, q, model_.weights);
      norm(prefix + "ffn_norm.weight");
      matrix(prefix + "ffn_gate.weight", model_.ffn, model_.hidden, model_.weights);
      matrix(prefix + "ffn_up.weight", model_.ffn, model_.hidden, model_.weights);
      matrix(prefix + "ffn_down.weight", model_.hidden, model_.ffn, model_.head);
    }
    norm("output_norm.weight");
    matrix("output.weight", model_.vocab, model_.hidden, model_.head);

    auto owned = std::make_shared<OwnedFile>();
    owned->image = writer_.image();
    auto file = GgufFile::from_bytes(owned->image.bytes, "tiny model");
    if (!file) return nullptr;
    owned->file = file.value();
    return {owned, owned->file.get()};
  }

 private:
  void describe() {
    writer_.string("general.architecture", "llama");
    writer_.string("general.name", "tiny");
    writer_.u32("llama.block_count", std::uint32_t(model_.layers));
    writer_.u32("llama.embedding_length", std::uint32_t(model_.hidden));
    writer_.u32("llama.feed_forward_length", std::uint32_t(model_.ffn));
    writer_.u32("llama.attention.head_count", std::uint32_t(model_.heads));
    writer_.u32("llama.attention.head_count_kv", std::uint32_t(model_.kv_heads));
    writer_.u32("llama.attention.key_length", std::uint32_t(model_.head_dim));
    writer_.u32("llama.attention.value_length", std::uint32_t(model_.head_dim));
    writer_.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    writer_.u32("llama.rope.dimension_count", std::uint32_t(model_.head_dim));
    writer_.f32("llama.rope.freq_base", 10000.0f);
    writer_.u32("llama.context_length", 4096);
    writer_.u32("llama.vocab_size", std::uint32_t(model_.vocab));
  }

  void norm(std::string name) {
    std::vector<float> values(std::size_t(model_.hidden));
    for (float& value : values) value = 1.0f + 0.1f * normal_(random_);
    add(std::move(name), {std::uint64_t(model_.hidden)}, Format::f32, values);
  }

  void matrix(std::string name, int rows, int k, Format format, double deviation = 0) {
    const float scale = float(deviation > 0 ? deviation : 1 / std::sqrt(double(k)));
    std::vector<float> values(std::size_t(rows) * std::size_t(k));
    for (float& value : values) value = scale * normal_(random_);
    add(std::move(name), {std::uint64_t(k), std::uint64_t(rows)}, format, values);
  }

  void add(std::string name, std::vector<std::uint64_t> dims, Format format,
           const std::vector<float>& values) {
    const FormatRow& traits = row(format);
    std::vector<std::byte> data(std::size_t(row_bytes(format, std::int64_t(values.size()))));
    traits.pack(values.data(), std::int64_t(values.size()), data.data());
    writer_.tensor(std::move(name), std::move(dims), traits.ggml_type, std::move(data));
  }

  const TinyModel& model_;
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
  GgufWriter writer_;
};

}  // namespace

std::shared_ptr<const GgufFile> make_model(const TinyModel& model) {
  return Builder(model).build();
}

}  // namespace lathe::testing
