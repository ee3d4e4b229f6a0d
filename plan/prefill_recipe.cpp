// Owns the recipe by which a prompt is read: each step of a decoding plan with five kernels a layer
// becomes the steps that do the same for the tokens of a chunk.
//
// What comes after the last layer's keys and values is left out: a prompt's last token is decoded,
// and no other token's logits are wanted.
#include <map>
#include <string_view>

#include "lathe/codegen/kernel_table.h"
#include "plan/step_list.h"
#include "plan/tuning.h"

namespace lathe {
namespace {

constexpr int kAppendWarps = 8;

class PrefillRecipe {
 public:
  PrefillRecipe(const Plan& from, bool grouped)
      : from_(from),
        grouped_(grouped),
        tokens_(from.options.chunk),
        chunk_(steps_.scratch(static_cast<std::int64_t>(sizeof(PrefillChunk) / 4) + tokens_)) {}

  Result<PrefillPlan> run() {
    for (const Step& step : from_.steps) {
      step_ = &step;
      if (step.key.type == KernelType::embed) embed();
      if (step.key.type == KernelType::matvec) rows();
      if (step.key.type == KernelType::attend) {
        append();
        if (step.layer == from_.spec.layers - 1) break;
        attend();
      }
    }
    PrefillPlan out{from_, {}};
    out.plan.notes.clear();
    std::move(steps_).finish(out.plan, chunk_);
    out.chunk = out.plan.logits;
    out.plan.logits = {};
    for (const Step& step : out.plan.steps) {
      if (const auto valid = check_key(step.key); !valid) {
        Error error = Error(valid.error()).with("step", step.label);
        error.code = Code::not_eligible;
        return error;
      }
    }
    return out;
  }

 private:
  const KernelKey& key() const { return step_->key; }

  // The decoding step's operand for this parameter of its kernel, if it has it.
  const Operand* find(std::string_view name) const {
    const std::vector<Param> params = row(key().type).params(key());
    for (std::size_t i = 0; i < params.size(); ++i)
      if (name == params[i].name) return &step_->operands[i];
    return nullptr;
  }
  const Operand& operand(std::string_view name) const { return *find(name); }

  void add(const char* suffix, const KernelKey& key, std::vector<Operand> operands) {
    steps_.add(step_->layer, step_->label + suffix, key, std::move(operands));
  }
  KernelKey key_of(KernelType type, Format format = Format::f32) const {
    KernelKey key{.type = type, .format = format};
    key.tokens = tokens_;
    return key;
  }

  // What a vector of the decoding plan is for a chunk: a row of f32 for each token, or of operands.
  // Each such vector has a place of its own.
  Operand f32_rows(const Operand& vector) {
    const auto [found, added] = f32_rows_.try_emplace(vector.offset);
    if (added) found->second = steps_.scratch(vector.bytes / 4 * tokens_);
    return found->second;
  }
  Operand operand_rows(const Operand& vector) {
    const auto [found, added] = operand_rows_.try_emplace(vector.offset);
    if (added) found->second = operands(static_cast<int>(vector.bytes / 4));
    return found->second;
  }
  Operand operands(int k) {
    KernelKey reader = key_of(KernelType::matmul);
    reader.k = k;
    for (const Param& param : row(reader.type).params(reader))
      if (std::string_view("x") == param.name) return steps_.scratch(param.bytes / 4);
    return {};
  }
  Operand chunk() const {
    Operand out = chunk_;
    out.bytes = sizeof(PrefillChunk);
    return out;
  }

  void embed() {
    KernelKey wanted = key();
    wanted.tokens = tokens_;
    Operand tokens = chunk_;
    tokens.offset = sizeof(PrefillChunk);
    tokens.bytes = std::int64_t{tokens_} * 4;
    add("", wanted, {operand("table"), tokens, f32_rows(operand("y"))});
  }

  // The operands that a matrix-vector step's products want.
  Operand normed() {
    const Operand* norm = find("norm");
    if (!norm) return operand_rows(operand("x"));
    KernelKey wanted = key_of(KernelType::norm_tokens);
    wanted.k = key().k;
    wanted.epsilon = key().epsilon;
    wanted.joined = key().joined;
    wanted.warps = rms_norm_warps(key().k);
    const Operand x = operands(key().k);
    std::vector<Operand> given = {f32_rows(operand("x")), *norm};
    if (key().joined) {
      given.push_back(operand("post_norm"));
      given.push_back(f32_rows(operand("stream")));
      given.push_back(f32_rows(operand("joined_stream")));
    }
    given.push_back(chunk());
    given.push_back(x);
    add("_norm", wanted, std::move(given));
    return x;
  }

  void rows() {
    if (step_->layer < 0) return;  // the head
    const Operand x = normed();
    KernelKey wanted = key_of(KernelType::matmul, key().format);
    wanted.k = key().k;
    wanted.n = key().n;
    wanted.n_b = key().n_b;
    wanted.n_c = key().n_c;
    wanted.format_b = key().format_b;
    wanted.format_c = key().format_c;
    wanted.bias = key().bias;
    wanted.residual = key().residual;
    wanted.gated = key().gated;
    wanted.activation = key().activation;
    wanted.warps = kFusedWarps;
    wanted.grouped = grouped_;
    std::vector<Operand> given;
    for (const char* name : {"weights", "weights_b", "weights_c"})
      if (const Operand* weights = find(name)) given.push_back(*weights);
    given.push_back(chunk());
    given.push_back(x);
    for (const char* name : {"bias", "bias_b", "bias_c"})
      if (const Operand* bias = find(name)) given.push_back(*bias);
    if (const Operand* residual = find("residual")) given.push_back(f32_rows(*residual));
    given.push_back(key().gated ? operand_rows(operand("y")) : f32_rows(operand("y")));
    add("", wanted, std::move(given));
  }

  void append() {
    KernelKey wanted = key();
    wanted.type = KernelType::append_tokens;
    wanted.tokens = tokens_;
    wanted.warps = kAppendWarps;
    wanted.window = 0;
    wanted.splits = 1;
    queries_ = steps_.scratch(std::int64_t{tokens_} * key().heads * key().head_dim / 2);
    std::vector<Operand> given = {f32_rows(operand("qkv"))};
    if (key().qk_norm) {
      given.push_back(operand("q_norm"));
      given.push_back(operand("k_norm"));
    }
    for (const Operand& next :
         {operand("frequencies"), chunk(), operand("k_cache"), operand("v_cache"), queries_})
      given.push_back(next);
    add("_append", wanted, std::move(given));
  }

  void attend() {
    KernelKey wanted = key_of(KernelType::attend_tokens, key().format);
    wanted.heads = key().heads;
    wanted.kv_heads = key().kv_heads;
    wanted.head_dim = key().head_dim;
    wanted.window = key().window;
    wanted.warps = kFusedWarps;
    add("", wanted,
        {queries_, chunk(), operand("k_cache"), operand("v_cache"), operand_rows(operand("y"))});
  }

  const Plan& from_;
  const bool grouped_;
  const int tokens_;
  StepList steps_;
  const Operand chunk_;
  const Step* step_ = nullptr;
  std::map<std::int64_t, Operand> f32_rows_, operand_rows_;
  Operand queries_;
};

}  // namespace

Result<PrefillPlan> build_prefill_plan(const Plan& plan, bool grouped) {
  if (plan.options.chunk == 0) return Error{Code::not_eligible, "the session's options say so", {}};
  if (plan.options.fusion != Fusion::full)
    return Error{Code::not_eligible, "the plan has a kernel for each operation", {}};
  return PrefillRecipe(plan, grouped).run();
}

}  // namespace lathe
