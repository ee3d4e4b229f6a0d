// Owns the recipe with five kernels a layer.
//
// Norms are done by the kernel that reads the normed vector, biases and residuals by the one that
// makes the rows. With post-norms the residual stream is joined by the reader: it norms the rows it
// gets and adds them to the stream. Every vector keeps a place of its own, as a persistent kernel
// wants it, whose blocks hand vectors over while they run.
#include "plan/fused_recipe.h"

#include <optional>

#include "lathe/codegen/kernel_table.h"
#include "lathe/codegen/tile.h"
#include "plan/recipe.h"
#include "plan/selection.h"
#include "plan/step_list.h"
#include "plan/weight_list.h"

namespace lathe {
namespace {

class FusedRecipe {
 public:
  FusedRecipe(const GgufFile& file, Plan& plan)
      : plan_(plan),
        spec_(plan.spec),
        options_(plan.options),
        selector_(plan.options),
        weights_(file) {}

  Result<void> run() {
    plan_.tables = rope_tables(spec_);
    counters_ = steps_.counters(spec_.kv_heads);
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
    } else if (stream_.post_norm) {
      join();
    }
    ends_.hidden = stream_.rows;
    plan_.weights = std::move(weights_).take();
    std::move(steps_).finish(plan_, ends_, false);
    begin_early(plan_.steps, options_.gpu);
    return std::move(selector_).finish(plan_);
  }

 private:
  // What the next norm reads: the stream itself or, with post-norms, the last block's rows with the
  // norm that they have to pass and the stream they will be added to.
  struct Stream {
    Operand rows;
    std::optional<int> post_norm;
    Operand joined_to;
  };

  struct Matrix {
    int weight;
    int rows;
    std::optional<int> bias;
  };

  // The layer's in the model.
  int number() const { return layer_ < 0 ? -1 : options_.part.first_layer + layer_; }
  const LayerSpec& layer() const { return spec_.per_layer[static_cast<std::size_t>(layer_)]; }

  void add(std::string label, const KernelKey& key, std::vector<Operand> operands) {
    steps_.add(number(), std::move(label), key, std::move(operands));
  }

  Result<Matrix> matrix(const std::string& label, int n, int k, bool bias = false) {
    LATHE_ASSIGN(const int weight, weights_.matrix(tensor_name(number(), label), n, k));
    if (const auto shape = tile_shape(weights_[weight].format, n, k); !shape)
      return Error(shape.error()).with("tensor", weights_[weight].name);
    weights_.set_layout(weight, Layout::tiles);
    Matrix out{weight, n, {}};
    if (bias) {
      LATHE_ASSIGN(const int slot, weights_.vector(tensor_name(number(), label, "bias"), n));
      out.bias = slot;
    }
    return out;
  }

  Operand weight(int index) const { return StepList::weight(weights_, index); }

  // The matrices' rows of a vector of k values that is normed, or of one that is not.
  Result<Operand> rows(const std::string& label, const std::vector<Matrix>& matrices, int k,
                       const Stream x, std::optional<int> norm,
                       std::optional<Operand> residual = {}, bool gated = false) {
    KernelKey key{.type = KernelType::matvec, .format = weights_[matrices[0].weight].format};
    key.k = k;
    key.n = matrices[0].rows;
    int total = key.n;
    if (matrices.size() > 1) {
      key.n_b = matrices[1].rows;
      key.format_b = weights_[matrices[1].weight].format;
      if (!gated) total += key.n_b;
    }
    if (matrices.size() > 2) {
      key.n_c = matrices[2].rows;
      key.format_c = weights_[matrices[2].weight].format;
      total += key.n_c;
    }
    key.norm = norm.has_value();
    key.joined = x.post_norm.has_value();
    key.bias = matrices[0].bias.has_value();
    key.residual = residual.has_value();
    key.gated = gated;
    if (gated) key.activation = spec_.activation;
    if (norm) key.epsilon = spec_.epsilon;
    key = selector_.tuned(key);

    std::vector<Operand> operands;
    for (const Matrix& m : matrices) operands.push_back(weight(m.weight));
    operands.push_back(x.rows);
    if (norm) operands.push_back(weight(*norm));
    if (x.post_norm) {
      stream_ = {steps_.scratch(k), {}, {}};
      operands.push_back(weight(*x.post_norm));
      operands.push_back(x.joined_to);
      operands.push_back(stream_.rows);
    }
    for (const Matrix& m : matrices)
      if (m.bias) operands.push_back(weight(*m.bias));
    if (residual) operands.push_back(*residual);
    const Operand y = steps_.scratch(total);
    operands.push_back(y);
    add(label, key, std::move(operands));
    return y;
  }

  Result<void> start() {
    if (options_.part.input == PartInput::token) return embed();
    const HiddenStart hidden = add_hidden_start(steps_, spec_);
    ends_.input = hidden.input;
    stream_ = {hidden.stream, {}, {}};
    return {};
  }

  Result<void> embed() {
    LATHE_ASSIGN(const int table, weights_.matrix("token_embd.weight", spec_.vocab, spec_.hidden));
    if (spec_.tied_head) {
      LATHE_ASSIGN(const Matrix head, matrix("token_embd", spec_.vocab, spec_.hidden));
      static_cast<void>(head);
    }
    KernelKey key{.type = KernelType::embed, .format = weights_[table].format};
    key.k = spec_.hidden;
    key.n = spec_.vocab;
    key.scale = spec_.embedding_scale;
    key.layout = weights_[table].layout;
    const Operand y = steps_.scratch(spec_.hidden);
    add("token_embd", key, {weight(table), StepList::token(), y});
    stream_ = {y, {}, {}};
    return {};
  }

  // The projection back to the hidden size: added to the stream here, or joined by the reader.
  Result<void> project(const std::string& label, const std::string& post_norm, const Operand& x,
                       int k) {
    LATHE_ASSIGN(const Matrix m, matrix(label, spec_.hidden, k));
    if (!spec_.post_norms) {
      std::optional<Operand> residual;
      if (options_.part.residual) residual = stream_.rows;
      LATHE_ASSIGN(const Operand y, rows(label, {m}, k, {x, {}, {}}, {}, residual));
      stream_ = {y, {}, {}};
      return {};
    }
    LATHE_ASSIGN(const Operand y, rows(label, {m}, k, {x, {}, {}}, {}));
    LATHE_ASSIGN(const int norm, weights_.vector(tensor_name(number(), post_norm), spec_.hidden));
    stream_ = {y, norm, stream_.rows};
    return {};
  }

  Result<void> attention_block() {
    const int q = spec_.heads * spec_.head_dim, kv = spec_.kv_heads * spec_.head_dim;
    LATHE_ASSIGN(const int norm, weights_.vector(tensor_name(number(), "attn_norm"), spec_.hidden));
    LATHE_ASSIGN(const Matrix wq, matrix("attn_q", q, spec_.hidden, spec_.qkv_bias));
    LATHE_ASSIGN(const Matrix wk, matrix("attn_k", kv, spec_.hidden, spec_.qkv_bias));
    LATHE_ASSIGN(const Matrix wv, matrix("attn_v", kv, spec_.hidden, spec_.qkv_bias));
    LATHE_ASSIGN(const Operand qkv, rows("attn_qkv", {wq, wk, wv}, spec_.hidden, stream_, norm));
    LATHE_ASSIGN(const Operand y, attend(qkv));
    return project("attn_output", "post_attention_norm", y, q);
  }

  Result<Operand> attend(const Operand& qkv) {
    const RopeSpec& rope = spec_.ropes[static_cast<std::size_t>(layer().rope)];
    KernelKey key{.type = KernelType::attend, .format = options_.kv};
    key.heads = spec_.heads;
    key.kv_heads = spec_.kv_heads;
    key.head_dim = spec_.head_dim;
    key.rotary = rope.dims;
    key.pairing = rope.pairing;
    key.window = layer().window;
    key.scale = spec_.attention_scale;
    key.qk_norm = spec_.qk_norm;
    if (key.qk_norm) key.epsilon = spec_.epsilon;
    key = selector_.tuned(key, visible_positions(key.window, options_.context));
    std::vector<Operand> operands = {qkv};
    if (spec_.qk_norm) {
      LATHE_ASSIGN(const int q_norm,
                   weights_.vector(tensor_name(number(), "attn_q_norm"), spec_.head_dim));
      LATHE_ASSIGN(const int k_norm,
                   weights_.vector(tensor_name(number(), "attn_k_norm"), spec_.head_dim));
      operands.push_back(weight(q_norm));
      operands.push_back(weight(k_norm));
    }
    operands.push_back(StepList::table(plan_.tables, layer().rope));
    operands.push_back(StepList::position());
    operands.push_back(StepList::kv_k(layer_));
    operands.push_back(StepList::kv_v(layer_));
    if (const auto valid = check_key(key); !valid) return not_eligible(valid.error());
    for (const Param& param : row(key.type).params(key)) {
      if (!param.scratch) continue;
      if (partial_.bytes < param.bytes) partial_ = steps_.scratch(param.bytes / 4);
    }
    operands.push_back(partial_);
    operands.push_back(counters_);
    const Operand y = steps_.scratch(std::int64_t{spec_.heads} * spec_.head_dim);
    operands.push_back(y);
    add("attention", key, std::move(operands));
    return y;
  }

  Result<void> ffn_block() {
    LATHE_ASSIGN(const int norm, weights_.vector(tensor_name(number(), "ffn_norm"), spec_.hidden));
    LATHE_ASSIGN(const Matrix gate, matrix("ffn_gate", spec_.ffn, spec_.hidden));
    LATHE_ASSIGN(const Matrix up, matrix("ffn_up", spec_.ffn, spec_.hidden));
    LATHE_ASSIGN(const Operand y,
                 rows("ffn_gate_up", {gate, up}, spec_.hidden, stream_, norm, {}, true));
    return project("ffn_down", "post_ffw_norm", y, spec_.ffn);
  }

  // What the reader of the stream would do, where the part has none.
  void join() {
    KernelKey key = norm_key(selector_, spec_, spec_.hidden, 1);
    key.residual = options_.part.residual;
    std::vector<Operand> operands = {stream_.rows, weight(*stream_.post_norm)};
    if (key.residual) operands.push_back(stream_.joined_to);
    stream_ = {steps_.scratch(spec_.hidden), {}, {}};
    operands.push_back(stream_.rows);
    add("post_norm", key, std::move(operands));
  }

  Result<Operand> head() {
    LATHE_ASSIGN(const int norm, weights_.vector("output_norm.weight", spec_.hidden));
    LATHE_ASSIGN(const Matrix m,
                 matrix(spec_.tied_head ? "token_embd" : "output", spec_.vocab, spec_.hidden));
    return rows("output", {m}, spec_.hidden, stream_, norm);
  }

  static Error not_eligible(Error error) {
    error.code = Code::not_eligible;
    return error;
  }

  Plan& plan_;
  const ModelSpec& spec_;
  const PlanOptions& options_;
  Selector selector_;
  WeightList weights_;
  StepList steps_;
  Operand counters_;
  Operand partial_;  // of the attention splits: each layer's are merged before the next one's
  StepList::Ends ends_;
  Stream stream_;
  int layer_ = -1;
};

}  // namespace

Result<void> add_fused_steps(const GgufFile& file, Plan& plan) {
  return FusedRecipe(file, plan).run();
}

}  // namespace lathe
