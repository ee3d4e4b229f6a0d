// Owns the recipe by which many tokens are taken at once: each step of a decoding plan with five
// kernels a layer becomes the steps that do the same for the tokens of a chunk of a prompt, or for
// those of a batch, which have sequences of their own.
//
// Of a prompt, what comes after the last layer's keys and values is left out: its last token is
// decoded, and no other token's logits are wanted.
#include <fmt/format.h>

#include <map>
#include <string_view>

#include "lathe/codegen/kernel_table.h"
#include "plan/selection.h"
#include "plan/step_list.h"

namespace lathe {
namespace {

// Bytes of what the host writes before the steps.
std::int64_t head_bytes(const Plan& plan, const BatchShape* batch) {
  return batch ? batch->bytes() : std::int64_t(sizeof(PrefillChunk)) + plan.options.chunk * 4ll;
}

// Of a parameter that the kernel has.
std::int64_t parameter_bytes(const KernelKey& key, std::string_view name) {
  for (const Param& param : row(key.type).params(key))
    if (name == param.name) return param.bytes;
  return 0;
}

class ChunkRecipe {
 public:
  // Of a prompt where there is no batch.
  ChunkRecipe(const Plan& from, bool grouped, const BatchShape* batch)
      : from_(from),
        grouped_(grouped && !batch),
        batch_(batch),
        paged_(from.options.kv_pages > 0),
        tokens_(batch ? batch->rows : from.options.chunk),
        selector_(from.options),
        head_(steps_.scratch(head_bytes(from, batch) / 4)) {}

  // The plan's `logits` are the head.
  Result<Plan> run() {
    for (Step step : from_.steps) {
      step.key.early = false;
      step_ = &step;
      if (step.key.type == KernelType::embed) embed();
      if (step.key.type == KernelType::matvec) rows();
      if (step.key.type == KernelType::attend) {
        append();
        if (!batch_ && step.layer == from_.spec.layers - 1) break;
        attend();
      }
      if (step.key.type == KernelType::top_k) top_k();
      if (step.key.type == KernelType::sample) sample();
    }
    Plan out = from_;
    out.notes.clear();
    std::move(steps_).finish(out, {.input = {}, .logits = head_, .hidden = {}});
    if (batch_) begin_early(out.steps, from_.options.gpu);
    LATHE_TRY(std::move(selector_).finish(out));
    for (const Step& step : out.steps) {
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
    reader.blocks = batch_ ? 1 : 0;
    return scratch_for(reader, "x");
  }
  Operand of_head(std::int64_t offset, std::int64_t bytes) const {
    Operand out = head_;
    out.offset = offset;
    out.bytes = bytes;
    return out;
  }
  Operand chunk() const { return of_head(0, sizeof(PrefillChunk)); }
  Operand tokens() const { return of_head(sizeof(PrefillChunk), std::int64_t{tokens_} * 4); }
  // Of a batch: positions and places in the caches.
  Operand places() const {
    return of_head(batch_->places_at(), std::int64_t{tokens_} * std::int64_t(sizeof(BatchPlace)));
  }
  Operand sampling() const {
    return of_head(batch_->sampling_at(),
                   std::int64_t{tokens_} * std::int64_t(sizeof(SamplingState)));
  }
  Operand sampled() const { return of_head(batch_->sampled_at(), std::int64_t{tokens_} * 4); }
  // Scratch memory for this parameter of a kernel, and counters, each step's own.
  Operand scratch_for(const KernelKey& wanted, std::string_view name) {
    return steps_.scratch(parameter_bytes(wanted, name) / 4);
  }
  Operand counters_for(const KernelKey& wanted) {
    return steps_.counters(static_cast<int>(parameter_bytes(wanted, "counters") / 4));
  }

  void embed() {
    KernelKey wanted = key();
    wanted.tokens = tokens_;
    add("", wanted, {operand("table"), tokens(), f32_rows(operand("y"))});
  }

  // The operands that a matrix-vector step's products want.
  Operand normed() {
    const Operand* norm = find("norm");
    if (!norm) return operand_rows(operand("x"));
    KernelKey wanted = key_of(KernelType::norm_tokens);
    wanted.k = key().k;
    wanted.epsilon = key().epsilon;
    wanted.joined = key().joined;
    wanted.batched = batch_ != nullptr;
    wanted = selector_.tuned(wanted);
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
    if (step_->layer < 0 && !batch_) return;  // the head
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
    wanted.grouped = grouped_;
    wanted.blocks = batch_ ? 1 : 0;
    wanted = selector_.tuned(wanted);
    std::vector<Operand> given;
    for (const char* name : {"weights", "weights_b", "weights_c"})
      if (const Operand* weights = find(name)) given.push_back(*weights);
    given.push_back(chunk());
    given.push_back(x);
    for (const char* name : {"bias", "bias_b", "bias_c"})
      if (const Operand* bias = find(name)) given.push_back(*bias);
    if (const Operand* residual = find("residual")) given.push_back(f32_rows(*residual));
    if (batch_) {
      given.push_back(scratch_for(wanted, "partial"));
      given.push_back(counters_for(wanted));
    }
    given.push_back(key().gated ? operand_rows(operand("y")) : f32_rows(operand("y")));
    add("", wanted, std::move(given));
  }

  void append() {
    KernelKey wanted = key();
    wanted.type = KernelType::append_tokens;
    wanted.tokens = tokens_;
    wanted.window = 0;
    wanted.splits = 1;
    wanted.matrix = false;
    wanted = selector_.tuned(wanted);
    queries_ = steps_.scratch(std::int64_t{tokens_} * key().heads * key().head_dim / 2);
    std::vector<Operand> given = {f32_rows(operand("qkv"))};
    if (key().qk_norm) {
      given.push_back(operand("q_norm"));
      given.push_back(operand("k_norm"));
    }
    wanted.batched = batch_ != nullptr;
    wanted.paged = paged_;
    given.push_back(operand("frequencies"));
    given.push_back(chunk());
    if (batch_) given.push_back(places());
    if (paged_) given.push_back(StepList::pages());
    for (const Operand& next : {operand("k_cache"), operand("v_cache"), queries_})
      given.push_back(next);
    add("_append", wanted, std::move(given));
  }

  void attend() {
    KernelKey wanted = key_of(KernelType::attend_tokens, key().format);
    wanted.heads = key().heads;
    wanted.kv_heads = key().kv_heads;
    wanted.head_dim = key().head_dim;
    wanted.window = key().window;
    std::vector<Operand> given = {queries_, chunk()};
    if (batch_) {
      wanted.type = KernelType::attend_rows;
      wanted.splits = key().splits;
      given.push_back(places());
    }
    wanted.paged = paged_;
    if (paged_) given.push_back(StepList::pages());
    wanted = selector_.tuned(wanted);
    given.push_back(operand("k_cache"));
    given.push_back(operand("v_cache"));
    if (batch_) {
      given.push_back(scratch_for(wanted, "partial"));
      given.push_back(counters_for(wanted));
    }
    given.push_back(operand_rows(operand("y")));
    add("", wanted, std::move(given));
  }

  void top_k() {
    KernelKey wanted = key();
    wanted.tokens = tokens_;
    wanted.batched = true;
    partial_ = scratch_for(wanted, "partial");
    add("", wanted,
        {chunk(), f32_rows(operand("logits")), tokens(), places(), sampling(), partial_});
  }
  void sample() {
    KernelKey wanted = key();
    wanted.tokens = tokens_;
    wanted.batched = true;
    add("", wanted, {chunk(), partial_, places(), sampling(), sampled()});
  }

  const Plan& from_;
  const bool grouped_;
  const BatchShape* const batch_;
  const bool paged_;
  const int tokens_;
  StepList steps_;
  Selector selector_;
  const Operand head_;  // what the host writes before the steps
  const Step* step_ = nullptr;
  std::map<std::int64_t, Operand> f32_rows_, operand_rows_;
  Operand queries_, partial_;
};

Result<void> has_kernels_for_many(const Plan& plan) {
  if (!plan.whole) return Error{Code::not_eligible, "the plan is of a part of the model", {}};
  if (plan.options.fusion == Fusion::full) return {};
  return Error{Code::not_eligible, "the plan has a kernel for each operation", {}};
}

}  // namespace

Result<PrefillPlan> build_prefill_plan(const Plan& plan, bool grouped) {
  if (plan.options.chunk == 0) return Error{Code::not_eligible, "the session's options say so", {}};
  LATHE_TRY(has_kernels_for_many(plan));
  LATHE_ASSIGN(Plan built, ChunkRecipe(plan, grouped, nullptr).run());
  PrefillPlan out{std::move(built), {}};
  std::swap(out.chunk, out.plan.logits);
  return out;
}

Result<BatchPlan> build_batch_plan(const Plan& plan, int rows) {
  if (rows < 1 || rows > kMostBatchRows) {
    return Error{
        Code::invalid_argument,
        fmt::format("A batch has {} rows; it must have between 1 and {}.", rows, kMostBatchRows),
        {}};
  }
  LATHE_TRY(has_kernels_for_many(plan));
  const BatchShape shape{rows};
  LATHE_ASSIGN(Plan built, ChunkRecipe(plan, false, &shape).run());
  BatchPlan out{std::move(built), {}, shape};
  std::swap(out.head, out.plan.logits);
  for (const Step& step : out.plan.steps)
    if (step.key.type == KernelType::top_k) out.plan.logits = step.operands[1];
  return out;
}

}  // namespace lathe
