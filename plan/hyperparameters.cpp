// Owns reading the hyperparameters that every decoder family shares.
#include "plan/hyperparameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>

namespace lathe {
namespace {

constexpr std::int64_t kMaxCount = std::int64_t{1} << 30;

Error at_fault(Code code, const GgufFile& file, std::string message) {
  return Error{code, std::move(message), {{"file", file.path()}}};
}

// Keys that change what the model computes. A file may carry them at the values at which they do
// nothing; any other value would be ignored silently, so it is refused.
struct NeutralKey {
  const char* name;
  std::initializer_list<double> neutral;
  const char* meaning;
};

const NeutralKey kNeutralKeys[] = {
    {"expert_count", {0}, "mixture-of-experts layers"},
    {"expert_used_count", {0}, "mixture-of-experts layers"},
    {"attn_logit_softcapping", {0}, "attention soft-capping"},
    {"final_logit_softcapping", {0}, "logit soft-capping"},
    {"logit_scale", {0, 1}, "scaled logits"},
    {"embedding_scale", {0, 1}, "scaled embeddings"},
    {"residual_scale", {0, 1}, "scaled residuals"},
    {"attention.scale", {0}, "an explicit attention scale"},
    {"attention.clamp_kqv", {0}, "clamped q, k and v"},
    {"attention.max_alibi_bias", {0}, "ALiBi position biases"},
    {"attention.temperature_length", {0}, "attention temperature tuning"},
    {"attention.shared_kv_layers", {0}, "KV caches shared between layers"},
    {"nextn_predict_layers", {0}, "next-token-prediction layers"},
    {"rope.scaling.attn_factor", {1}, "a RoPE attention factor"},
    {"rope.scaling.yarn_log_multiplier", {0}, "YaRN RoPE scaling"},
};

Result<void> check_neutral_keys(const GgufFile& file, const Hyperparameters& keys) {
  for (const NeutralKey& neutral : kNeutralKeys) {
    if (!keys.has(neutral.name)) continue;
    LATHE_ASSIGN(const double value, keys.real(neutral.name));
    if (std::find(neutral.neutral.begin(), neutral.neutral.end(), value) != neutral.neutral.end()) {
      continue;
    }
    return at_fault(Code::unsupported, file,
                    fmt::format("the model uses {} (key '{}' is {}), which is not supported",
                                neutral.meaning, keys.key(neutral.name), value));
  }
  const std::string causal = keys.key("attention.causal");
  if (file.value(causal) != nullptr) {
    LATHE_ASSIGN(const bool value, file.boolean(causal));
    if (!value) {
      return at_fault(Code::unsupported, file,
                      fmt::format("the model attends to later positions (key '{}' is false), which "
                                  "is not supported",
                                  causal));
    }
  }
  return {};
}

// Keys that may repeat a size found elsewhere, but not differ from it.
Result<void> check_equal(const GgufFile& file, const Hyperparameters& keys, const char* name,
                         int expected, const char* meaning) {
  LATHE_ASSIGN(const int value, keys.count_or(name, expected));
  if (value == expected) return {};
  return at_fault(Code::unsupported, file,
                  fmt::format("key '{}' is {}, but {} is {}; a model with both is not supported",
                              keys.key(name), value, meaning, expected));
}

// 1 / the linear scaling factor.
Result<double> read_freq_scale(const GgufFile& file, const Hyperparameters& keys) {
  const std::string type_key = keys.key("rope.scaling.type");
  std::string type = "linear";
  if (file.value(type_key) != nullptr) {
    LATHE_ASSIGN(type, file.string(type_key));
  }
  if (type == "none") return 1.0;
  if (type != "linear") {
    return at_fault(
        Code::unsupported, file,
        fmt::format("RoPE scaling '{}' (key '{}') is not supported; known: none, linear", type,
                    type_key));
  }
  const char* name = keys.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  LATHE_ASSIGN(const double factor, keys.real_or(name, 0));
  if (factor == 0) return 1.0;
  if (factor < 0) {
    return at_fault(
        Code::corrupt_file, file,
        fmt::format("key '{}' is {}; a scaling factor is positive", keys.key(name), factor));
  }
  return 1 / factor;
}

Result<RopeSpec> read_rope(const GgufFile& file, const Hyperparameters& keys, int head_dim) {
  RopeSpec rope;
  rope.pairing = Pairing::halves;
  LATHE_ASSIGN(rope.dims, keys.count_or("rope.dimension_count", head_dim));
  if (rope.dims > head_dim || rope.dims % 2 != 0) {
    return at_fault(Code::corrupt_file, file,
                    fmt::format("key '{}' is {}; it must be even and at most the head size {}",
                                keys.key("rope.dimension_count"), rope.dims, head_dim));
  }
  LATHE_TRY(check_equal(file, keys, "rope.dimension_count_swa", rope.dims,
                        "the RoPE size of the other layers"));
  LATHE_ASSIGN(rope.theta, keys.real_or("rope.freq_base", 10000));
  if (rope.theta <= 0) {
    return at_fault(Code::corrupt_file, file,
                    fmt::format("key '{}' is {}; a frequency base is positive",
                                keys.key("rope.freq_base"), rope.theta));
  }
  LATHE_ASSIGN(rope.freq_scale, read_freq_scale(file, keys));
  return rope;
}

Result<int> read_vocab(const GgufFile& file, int hidden) {
  const GgufTensor* embedding = file.tensor("token_embd.weight");
  if (embedding == nullptr) {
    return at_fault(Code::not_found, file, "the tensor 'token_embd.weight' is missing");
  }
  const std::int64_t rows = embedding->rows();
  if (embedding->k() != hidden) {
    return at_fault(Code::corrupt_file, file,
                    fmt::format("tensor 'token_embd.weight' has rows of {} values, but the hidden "
                                "size is {}",
                                embedding->k(), hidden));
  }
  if (rows > kMaxCount) {
    return at_fault(
        Code::corrupt_file, file,
        fmt::format("tensor 'token_embd.weight' has {} rows; the limit is {}", rows, kMaxCount));
  }
  const auto* tokens = file.strings("tokenizer.ggml.tokens");
  if (tokens != nullptr && static_cast<std::int64_t>(tokens->size()) != rows) {
    return at_fault(Code::corrupt_file, file,
                    fmt::format("the vocabulary has {} tokens, but 'token_embd.weight' has {} rows",
                                tokens->size(), rows));
  }
  return static_cast<int>(rows);
}

Result<void> check_head_sizes(const GgufFile& file, const Hyperparameters& keys,
                              const ModelSpec& spec) {
  LATHE_TRY(check_equal(file, keys, "attention.value_length", spec.head_dim, "the key head size"));
  LATHE_TRY(check_equal(file, keys, "attention.key_length_swa", spec.head_dim,
                        "the head size of the other layers"));
  LATHE_TRY(check_equal(file, keys, "attention.value_length_swa", spec.head_dim,
                        "the head size of the other layers"));
  if (spec.heads % spec.kv_heads != 0) {
    return at_fault(Code::corrupt_file, file,
                    fmt::format("the model has {} query heads (key '{}') and {} KV heads (key "
                                "'{}'); the first must be a multiple of the second",
                                spec.heads, keys.key("attention.head_count"), spec.kv_heads,
                                keys.key("attention.head_count_kv")));
  }
  if (std::int64_t{spec.heads} * spec.head_dim > kMaxCount) {
    return at_fault(Code::corrupt_file, file,
                    fmt::format("{} heads of {} values (keys '{}', '{}') exceed the limit of {}",
                                spec.heads, spec.head_dim, keys.key("attention.head_count"),
                                keys.key("attention.key_length"), kMaxCount));
  }
  return {};
}

}  // namespace

std::string Hyperparameters::key(std::string_view name) const {
  return fmt::format("{}.{}", architecture_, name);
}

Result<int> Hyperparameters::bounded(std::string_view name, int least) const {
  const std::string full = key(name);
  std::int64_t value = 0;
  if (const auto* array = file_.integers(full); array != nullptr && !array->empty()) {
    value = array->front();
    if (std::any_of(array->begin(), array->end(), [&](auto other) { return other != value; })) {
      return at_fault(
          Code::unsupported, file_,
          fmt::format("key '{}' differs from layer to layer, which is not supported", full));
    }
  } else {
    LATHE_ASSIGN(value, file_.integer(full));
  }
  if (value < least || value > kMaxCount) {
    return at_fault(
        Code::corrupt_file, file_,
        fmt::format("key '{}' is {}; it must be {} to {}", full, value, least, kMaxCount));
  }
  return static_cast<int>(value);
}

Result<int> Hyperparameters::count(std::string_view name) const {
  return bounded(name, 1);
}

Result<int> Hyperparameters::count_or(std::string_view name, int fallback) const {
  if (!has(name)) return fallback;
  return bounded(name, 1);
}

Result<int> Hyperparameters::count_or_zero(std::string_view name) const {
  if (!has(name)) return 0;
  return bounded(name, 0);
}

Result<double> Hyperparameters::real(std::string_view name) const {
  LATHE_ASSIGN(const double value, file_.real(key(name)));
  if (std::isfinite(value)) return value;
  return at_fault(Code::corrupt_file, file_,
                  fmt::format("key '{}' is {}, not a finite number", key(name), value));
}

Result<double> Hyperparameters::real_or(std::string_view name, double fallback) const {
  if (!has(name)) return fallback;
  return real(name);
}

Result<ModelSpec> read_decoder_spec(const GgufFile& file, const std::string& architecture) {
  const Hyperparameters keys(file, architecture);
  LATHE_TRY(check_neutral_keys(file, keys));

  ModelSpec spec;
  spec.architecture = architecture;
  if (file.value("general.name") != nullptr) {
    LATHE_ASSIGN(spec.name, file.string("general.name"));
    // The name is printed on terminals, where control characters are commands.
    std::ranges::replace_if(
        spec.name, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  }
  LATHE_ASSIGN(spec.layers, keys.count("block_count"));
  if (static_cast<std::size_t>(spec.layers) > file.tensors().size()) {
    return at_fault(Code::corrupt_file, file,
                    fmt::format("key '{}' is {}, but the file has only {} tensors",
                                keys.key("block_count"), spec.layers, file.tensors().size()));
  }
  LATHE_ASSIGN(spec.hidden, keys.count("embedding_length"));
  LATHE_ASSIGN(spec.ffn, keys.count("feed_forward_length"));
  LATHE_ASSIGN(spec.heads, keys.count("attention.head_count"));
  LATHE_ASSIGN(spec.kv_heads, keys.count_or("attention.head_count_kv", spec.heads));
  if (!keys.has("attention.key_length") && spec.hidden % spec.heads != 0) {
    return at_fault(Code::corrupt_file, file,
                    fmt::format("key '{}' is missing and the hidden size {} is no multiple of the "
                                "{} heads",
                                keys.key("attention.key_length"), spec.hidden, spec.heads));
  }
  LATHE_ASSIGN(spec.head_dim, keys.count_or("attention.key_length", spec.hidden / spec.heads));
  LATHE_TRY(check_head_sizes(file, keys, spec));
  LATHE_ASSIGN(spec.context, keys.count("context_length"));
  LATHE_ASSIGN(const double epsilon, keys.real("attention.layer_norm_rms_epsilon"));
  if (epsilon < 0 || epsilon > 1) {
    return at_fault(Code::corrupt_file, file,
                    fmt::format("key '{}' is {}; it must be 0 to 1",
                                keys.key("attention.layer_norm_rms_epsilon"), epsilon));
  }
  spec.epsilon = static_cast<float>(epsilon);
  spec.attention_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(spec.head_dim)));
  LATHE_ASSIGN(spec.vocab, read_vocab(file, spec.hidden));
  spec.tied_head = file.tensor("output.weight") == nullptr;
  LATHE_ASSIGN(RopeSpec rope, read_rope(file, keys, spec.head_dim));
  spec.ropes.push_back(std::move(rope));
  spec.per_layer.assign(static_cast<std::size_t>(spec.layers), LayerSpec{});
  return spec;
}

Result<std::vector<float>> read_rope_factors(const GgufFile& file, int dims) {
  const GgufTensor* tensor = file.tensor("rope_freqs.weight");
  if (tensor == nullptr) return std::vector<float>{};
  if (tensor->ggml_type != row(Format::f32).ggml_type) {
    return at_fault(
        Code::unsupported, file,
        fmt::format("tensor 'rope_freqs.weight' has type {}; it must be f32", tensor->ggml_type));
  }
  if (tensor->k() != dims / 2 || tensor->rows() != 1) {
    return at_fault(Code::corrupt_file, file,
                    fmt::format("tensor 'rope_freqs.weight' is {} x {}, but RoPE rotates {} pairs",
                                tensor->rows(), tensor->k(), dims / 2));
  }
  std::vector<float> factors(static_cast<std::size_t>(dims / 2));
  const auto data = file.data(*tensor);
  std::memcpy(factors.data(), data.data(), data.size());
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (!(factors[i] > 0) || !std::isfinite(factors[i])) {
      return at_fault(Code::corrupt_file, file,
                      fmt::format("value {} of tensor 'rope_freqs.weight' is {}; a factor is "
                                  "positive and finite",
                                  i, factors[i]));
    }
  }
  return factors;
}

Result<void> read_uniform_window(const GgufFile& file, ModelSpec& spec) {
  const Hyperparameters keys(file, spec.architecture);
  LATHE_ASSIGN(const int window, keys.count_or_zero("attention.sliding_window"));
  if (window >= spec.context) return {};
  for (LayerSpec& layer : spec.per_layer) layer.window = window;
  return {};
}

Result<void> refuse_window(const GgufFile& file, const ModelSpec& spec) {
  const Hyperparameters keys(file, spec.architecture);
  LATHE_ASSIGN(const int window, keys.count_or_zero("attention.sliding_window"));
  if (window == 0 || window >= spec.context) return {};
  return at_fault(Code::unsupported, file,
                  fmt::format("sliding-window attention (key '{}' is {}) is not supported for '{}'",
                              keys.key("attention.sliding_window"), window, spec.architecture));
}

bool has_qkv_bias(const GgufFile& file) {
  return file.tensor("blk.0.attn_q.bias") != nullptr;
}

}  // namespace lathe
