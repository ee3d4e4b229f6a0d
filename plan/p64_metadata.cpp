// Owns metadata between a GGUF file and the records of a P64 container.
#include "plan/p64_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "plan/gguf_entries.h"

namespace lathe::p64 {
namespace {

// What the records do not say. Containers without more come from an engine with this context.
constexpr std::uint32_t kContext = 4096;
constexpr std::int32_t kNormalToken = 1;
constexpr std::int32_t kControlToken = 3;

float epsilon_of(std::string_view architecture) {
  return architecture == "llama" ? 1e-5f : 1e-6f;
}

// Rows of the first layer's matrix into the FFN; 0 where there is none.
std::uint32_t ffn_of(std::span<const GgufTensor> tensors) {
  for (const char* name : {"blk.0.ffn_gate.weight", "blk.0.ffn_up.weight"}) {
    const auto found = std::ranges::find(tensors, name, &GgufTensor::name);
    if (found != tensors.end()) return static_cast<std::uint32_t>(found->rows());
  }
  return 0;
}

bool is_control(std::string_view token) {
  return token.size() > 2 && token.starts_with('<') && token.ends_with('>');
}

void add_vocabulary(GgufEntries& out, const Tokenizer& tokenizer) {
  // Pieces by score have none in the records: without merges this is no vocabulary to encode with.
  out.string("tokenizer.ggml.model", tokenizer.merges.empty() ? "no_vocab" : "gpt2");
  out.string("tokenizer.ggml.pre", tokenizer.pre);
  out.strings("tokenizer.ggml.tokens", tokenizer.tokens);
  std::vector<std::int32_t> types;
  for (const std::string& token : tokenizer.tokens)
    types.push_back(is_control(token) ? kControlToken : kNormalToken);
  out.integers("tokenizer.ggml.token_type", types);
  std::vector<std::string> merges;
  for (const auto& [left, right] : tokenizer.merges) merges.push_back(left + " " + right);
  out.strings("tokenizer.ggml.merges", merges);
  out.u32("tokenizer.ggml.bos_token_id", tokenizer.bos);
  out.u32("tokenizer.ggml.eos_token_id", tokenizer.eos);
  for (const std::uint32_t stop : tokenizer.stops) {
    if (stop == tokenizer.eos) continue;
    out.u32("tokenizer.ggml.eot_token_id", stop);
    break;
  }
  out.boolean("tokenizer.ggml.add_bos_token", tokenizer.add_bos);
}

// Looks up numbers of any width, arrays by their first element.
class Numbers {
 public:
  Numbers(const GgufFile& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}

  bool has(std::string_view name) const { return file_.value(prefix_ + std::string(name)); }

  std::uint32_t count(std::string_view name) const {
    const std::string key = prefix_ + std::string(name);
    std::int64_t value = 0;
    if (const auto* array = file_.integers(key); array != nullptr && !array->empty()) {
      value = array->front();
    } else if (const auto number = file_.integer(key)) {
      value = *number;
    }
    return std::in_range<std::uint32_t>(value) ? static_cast<std::uint32_t>(value) : 0;
  }

  float real(std::string_view name, float absent) const {
    const auto value = file_.real(prefix_ + std::string(name));
    return value ? static_cast<float>(*value) : absent;
  }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

}  // namespace

MadeMetadata make_metadata(const Hparams& hparams, std::span<const GgufTensor> tensors,
                           const Tokenizer* tokenizer) {
  const std::string architecture = architecture_name(hparams);
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", architecture, name); };
  GgufEntries out;
  out.string("general.architecture", architecture);
  out.u32(key("block_count"), hparams.layers);
  out.u32(key("context_length"), kContext);
  out.u32(key("embedding_length"), hparams.hidden);
  out.u32(key("feed_forward_length"), ffn_of(tensors));
  out.u32(key("attention.head_count"), hparams.heads);
  if (hparams.kv_heads != 0) out.u32(key("attention.head_count_kv"), hparams.kv_heads);
  if (hparams.head_dim != 0) {
    out.u32(key("attention.key_length"), hparams.head_dim);
    out.u32(key("attention.value_length"), hparams.head_dim);
  }
  if (hparams.head_dim_swa != 0) out.u32(key("attention.key_length_swa"), hparams.head_dim_swa);
  if (hparams.sliding_window != 0) out.u32(key("attention.sliding_window"), hparams.sliding_window);
  if (hparams.shared_kv_layers != 0)
    out.u32(key("attention.shared_kv_layers"), hparams.shared_kv_layers);
  if (hparams.logit_softcap != 0) out.f32(key("final_logit_softcapping"), hparams.logit_softcap);
  out.f32(key("attention.layer_norm_rms_epsilon"), epsilon_of(architecture));
  out.f32(key("rope.freq_base"), hparams.rope_base);
  if (hparams.rope_scale != 0 && hparams.rope_scale != 1)
    out.f32(key("rope.scaling.factor"), hparams.rope_scale);
  if (tokenizer != nullptr) add_vocabulary(out, *tokenizer);
  MadeMetadata made;
  made.count = out.count();
  made.entries = std::move(out).take();
  return made;
}

Hparams make_hparams(const GgufFile& file) {
  const Result<std::string> named = file.string("general.architecture");
  const std::string architecture = named ? *named : "";
  const Numbers numbers(file, architecture + ".");
  Hparams out = {};
  out.layers = numbers.count("block_count");
  out.hidden = numbers.count("embedding_length");
  out.heads = numbers.count("attention.head_count");
  out.kv_heads =
      numbers.has("attention.head_count_kv") ? numbers.count("attention.head_count_kv") : out.heads;
  if (const GgufTensor* embedding = file.tensor("token_embd.weight"))
    out.vocab = static_cast<std::uint32_t>(embedding->rows());
  out.rope_base = numbers.real("rope.freq_base", 10000);
  out.rope_scale = numbers.real(
      numbers.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear", 1);
  out.head_dim = numbers.count("attention.key_length");
  out.head_dim_swa = numbers.count("attention.key_length_swa");
  out.sliding_window = numbers.count("attention.sliding_window");
  out.shared_kv_layers = numbers.count("attention.shared_kv_layers");
  out.logit_softcap = numbers.real("final_logit_softcapping", 0);
  out.architecture = architecture_number(architecture);
  if (out.sliding_window != 0) out.architecture_flags |= kHasWindow;
  if (out.shared_kv_layers != 0) out.architecture_flags |= kHasSharedKv;
  if (file.tensor("blk.0.attn_q_norm.weight") != nullptr) out.architecture_flags |= kHasQkNorm;
  if (out.logit_softcap != 0) out.architecture_flags |= kHasSoftcap;
  return out;
}

Tokenizer make_tokenizer(const GgufFile& file) {
  Tokenizer out;
  const auto* tokens = file.strings("tokenizer.ggml.tokens");
  if (tokens == nullptr) return out;
  const Numbers numbers(file, "tokenizer.ggml.");
  out.bos = numbers.count("bos_token_id");
  out.eos = numbers.count("eos_token_id");
  if (const auto add = file.boolean("tokenizer.ggml.add_bos_token")) out.add_bos = *add;
  if (const auto pre = file.string("tokenizer.ggml.pre")) out.pre = *pre;
  out.tokens = *tokens;
  if (const auto* merges = file.strings("tokenizer.ggml.merges")) {
    for (const std::string& merge : *merges) {
      // A half is never empty, and the left one may begin with a space.
      const std::size_t space = merge.find(' ', 1);
      if (space == std::string::npos) continue;
      out.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
    }
  }
  out.stops.push_back(out.eos);
  if (numbers.has("eot_token_id") && numbers.count("eot_token_id") != out.eos)
    out.stops.push_back(numbers.count("eot_token_id"));
  return out;
}

}  // namespace lathe::p64
