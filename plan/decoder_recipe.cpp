// Owns the recipe that all families share: which kernels turn one token into logits, in order.
//
// A family differs by the flags of its ModelSpec, never by its own list of steps. Residuals are
// added by the kernel that produces the other summand, biases by their GEMV.
#include "plan/decoder_recipe.h"

#include "plan/kv_atoms.h"
#include "plan/recipe.h"
#include "plan/selection.h"
#include "plan/step_list.h"
#include "plan/weight_list.h"

namespace lathe {
namespace {

class DecoderRecipe {
 public:
  DecoderRecipe(const GgufFile& file, Plan& plan)
      : plan_(plan),
        spec_(plan.spec),
        options_(plan.options),
        selector_(plan.options),
        weights_(file) {}

  Result<void> run() {
    plan_.tables = rope_tables(spec_);
    LATHE_TRY(add_atom_tables(plan_));
    const ModelPart& part = options_.part;
    LATHE_TRY(start());
    for (layer_ = 0; layer_ < spec_.layers; ++layer_) {
      if (part.blocks != PartBlocks::ffn) LATHE_TRY(attention_block());
      if (part.blocks != PartBlocks::attention) LATHE_TRY(ffn_block());
    }
    layer_ = -1;
    if (part.output == PartOutput::logits) {
      LATHE_ASSIGN(ends_.logits, head());
      add_sampling(steps_, selector_, spec_.vocab, ends_.logits);
    }
    ends_.hidden = stream_;
    plan_.weights = std::move(weights_).take();
    std::move(steps_).finish(plan_, ends_);
    return std::move(selector_).finish(plan_);
  }

 private:
  int q_values() const { return spec_.heads * spec_.head_dim; }
  int kv_values() const { return spec_.kv_heads * spec_.head_dim; }
  // The layer's in the model.
  int number() const { return layer_ < 0 ? -1 : options_.part.first_layer + layer_; }
  const LayerSpec& layer() const { return spec_.per_layer[static_cast<std::size_t>(layer_)]; }

  void add(std::string label, const KernelKey& key, std::vector<Operand> operands) {
    steps_.add(number(), std::move(label), key, std::move(operands));
  }

  Result<void> start() {
    if (options_.part.input == PartInput::token) return embed();
    const HiddenStart hidden = add_hidden_start(steps_, spec_);
    ends_.input = hidden.input;
    stream_ = hidden.stream;
    return {};
  }

  Result<void> embed() {
    LATHE_ASSIGN(const int table, weights_.matrix("token_embd.weight", spec_.vocab, spec_.hidden));
    KernelKey key{.type = KernelType::embed, .format = weights_[table].format};
    key.k = spec_.hidden;
    key.n = spec_.vocab;
    key.scale = spec_.embedding_scale;
    stream_ = steps_.scratch(spec_.hidden);
    add("token_embd", key, {StepList::weight(weights_, table), StepList::token(), stream_});
    return {};
  }

  Result<void> attention_block() {
    LATHE_ASSIGN(const Operand x, norm("attn_norm", stream_));
    LATHE_ASSIGN(const Operand q, projection("attn_q", x, q_values()));
    LATHE_ASSIGN(const Operand k, projection("attn_k", x, kv_values()));
    LATHE_ASSIGN(const Operand v, projection("attn_v", x, kv_values()));
    if (spec_.qk_norm) {
      LATHE_TRY(head_norm("attn_q_norm", q, spec_.heads));
      LATHE_TRY(head_norm("attn_k_norm", k, spec_.kv_heads));
    }
    rope("rope_q", q, spec_.heads);
    rope("rope_k", k, spec_.kv_heads);
    append_kv(k, v);
    return add_to_stream("attn_output", "post_attention_norm", attend(q));
  }

  Result<void> ffn_block() {
    LATHE_ASSIGN(const Operand x, norm("ffn_norm", stream_));
    LATHE_ASSIGN(const Operand gate, gemv("ffn_gate", x, spec_.ffn));
    LATHE_ASSIGN(const Operand up, gemv("ffn_up", x, spec_.ffn));
    KernelKey key{.type = KernelType::glu};
    key.n = spec_.ffn;
    key.activation = spec_.activation;
    const Operand y = steps_.scratch(spec_.ffn);
    add("ffn_glu", key, {gate, up, y});
    return add_to_stream("ffn_down", "post_ffw_norm", y);
  }

  Result<Operand> head() {
    LATHE_ASSIGN(const Operand x, norm("output_norm", stream_));
    const char* name = spec_.tied_head ? "token_embd.weight" : "output.weight";
    LATHE_ASSIGN(const int weight, weights_.matrix(name, spec_.vocab, spec_.hidden));
    const Operand logits = steps_.scratch(spec_.vocab);
    add("output", gemv_key(weight), {StepList::weight(weights_, weight), x, logits});
    return logits;
  }

  KernelKey gemv_key(int weight) {
    const WeightSlot& slot = weights_[weight];
    KernelKey key{.type = KernelType::gemv, .format = slot.format};
    key.k = static_cast<int>(slot.k);
    key.n = static_cast<int>(slot.rows);
    return selector_.tuned(key);
  }

  static int values(const Operand& operand) {
    return static_cast<int>(operand.bytes / static_cast<std::int64_t>(sizeof(float)));
  }

  Result<Operand> gemv(const std::string& label, const Operand& x, int n, bool bias = false) {
    LATHE_ASSIGN(const int weight, weights_.matrix(tensor_name(number(), label), n, values(x)));
    KernelKey key = gemv_key(weight);
    std::vector<Operand> operands = {StepList::weight(weights_, weight), x};
    if (bias) {
      LATHE_ASSIGN(const int slot, weights_.vector(tensor_name(number(), label, "bias"), n));
      key.bias = true;
      operands.push_back(StepList::weight(weights_, slot));
    }
    const Operand y = steps_.scratch(n);
    operands.push_back(y);
    add(label, key, std::move(operands));
    return y;
  }

  Result<Operand> projection(const std::string& label, const Operand& x, int n) {
    return gemv(label, x, n, spec_.qkv_bias);
  }

  Result<Operand> norm(const std::string& label, const Operand& x) {
    LATHE_ASSIGN(const int weight, weights_.vector(tensor_name(number(), label), spec_.hidden));
    const Operand y = steps_.scratch(spec_.hidden);
    add(label, norm_key(selector_, spec_, spec_.hidden, 1),
        {x, StepList::weight(weights_, weight), y});
    return y;
  }

  Result<void> head_norm(const std::string& label, const Operand& x, int heads) {
    LATHE_ASSIGN(const int weight, weights_.vector(tensor_name(number(), label), spec_.head_dim));
    add(label, norm_key(selector_, spec_, spec_.head_dim, heads),
        {x, StepList::weight(weights_, weight), x});
    return {};
  }

  void rope(std::string label, const Operand& x, int heads) {
    const RopeSpec& rope = spec_.ropes[static_cast<std::size_t>(layer().rope)];
    KernelKey key{.type = KernelType::rope};
    key.heads = heads;
    key.head_dim = spec_.head_dim;
    key.rotary = rope.dims;
    key.pairing = rope.pairing;
    add(std::move(label), key,
        {x, StepList::position(), StepList::table(plan_.tables, layer().rope)});
  }

  // Of a kernel of the KV cache.
  KernelKey cached(KernelType type) const {
    KernelKey key{.type = type, .format = options_.kv};
    key.kv_heads = spec_.kv_heads;
    key.head_dim = spec_.head_dim;
    key.atoms = options_.atoms.count;
    key.terms = key.atoms > 0 ? options_.atoms.terms : 0;
    return key;
  }

  void add_atoms(std::vector<Operand>& operands) const {
    if (options_.atoms.count == 0) return;
    for (const bool of_values : {false, true})
      operands.push_back(StepList::table(plan_.tables, plan_.atom_table(layer_, of_values)));
  }

  void append_kv(const Operand& k, const Operand& v) {
    KernelKey key = cached(KernelType::kv_append);
    if (key.atoms > 0) key = selector_.tuned(key);
    std::vector<Operand> operands = {k, v, StepList::position()};
    add_atoms(operands);
    operands.push_back(StepList::kv_k(layer_));
    operands.push_back(StepList::kv_v(layer_));
    add("kv_append", key, std::move(operands));
  }

  Operand attend(const Operand& q) {
    KernelKey key = cached(KernelType::attention);
    key.heads = spec_.heads;
    key.window = layer().window;
    key.scale = spec_.attention_scale;
    key = selector_.tuned(key, visible_positions(key.window, options_.context));
    const Operand partial =
        steps_.scratch(std::int64_t{spec_.heads} * key.splits * (spec_.head_dim + 2));
    std::vector<Operand> operands = {q, StepList::kv_k(layer_), StepList::kv_v(layer_),
                                     StepList::position()};
    add_atoms(operands);
    operands.push_back(partial);
    add("attention", key, std::move(operands));

    KernelKey merge{.type = KernelType::attention_merge};
    merge.heads = key.heads;
    merge.head_dim = key.head_dim;
    merge.splits = key.splits;
    const Operand y = steps_.scratch(q_values());
    add("attention_merge", merge, {partial, y});
    return y;
  }

  // Projects x back to the hidden size, normed where the family has post-norms, and adds it to the
  // residual stream, or takes its place where the part is of a block alone.
  Result<void> add_to_stream(const std::string& label, const std::string& post_norm,
                             const Operand& x) {
    if (spec_.post_norms) {
      LATHE_ASSIGN(const Operand y, gemv(label, x, spec_.hidden));
      LATHE_ASSIGN(const int weight,
                   weights_.vector(tensor_name(number(), post_norm), spec_.hidden));
      add_to_stream(post_norm, norm_key(selector_, spec_, spec_.hidden, 1),
                    {y, StepList::weight(weights_, weight)});
      return {};
    }
    LATHE_ASSIGN(const int weight,
                 weights_.matrix(tensor_name(number(), label), spec_.hidden, values(x)));
    add_to_stream(label, gemv_key(weight), {StepList::weight(weights_, weight), x});
    return {};
  }
  void add_to_stream(const std::string& label, KernelKey key, std::vector<Operand> operands) {
    key.residual = options_.part.residual;
    if (key.residual) operands.push_back(stream_);
    operands.push_back(stream_);
    add(label, key, std::move(operands));
  }

  Plan& plan_;
  const ModelSpec& spec_;
  const PlanOptions& options_;
  Selector selector_;
  WeightList weights_;
  StepList steps_;
  StepList::Ends ends_;
  Operand stream_;  // the residual stream, updated in place
  int layer_ = -1;
};

}  // namespace

Result<void> add_decoder_steps(const GgufFile& file, Plan& plan) {
  return DecoderRecipe(file, plan).run();
}

}  // namespace lathe
