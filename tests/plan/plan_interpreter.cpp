// Owns running a plan on host memory through the kernels' oracles.
#include "tests/plan/plan_interpreter.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "lathe/codegen/kernel_table.h"

namespace lathe::testing {

PlanInterpreter::PlanInterpreter(const Plan& plan, const GgufFile& file)
    : plan_(plan), arena_(static_cast<std::size_t>(plan.arena_bytes) / sizeof(float)) {
  for (const WeightSlot& slot : plan.weights) {
    const auto data = file.data(*file.tensor(slot.name));
    weights_.emplace_back(data.begin(), data.end());
  }
  for (const Table& table : plan.tables) tables_.push_back(table.values);
  // 0xff bytes are a NaN in f16 and in f32: a position not written shows.
  const std::vector<std::byte> cache(static_cast<std::size_t>(plan.kv_bytes_per_layer()),
                                     std::byte{0xff});
  counters_.resize(static_cast<std::size_t>(plan.counter_bytes / 4));
  k_.assign(static_cast<std::size_t>(plan.spec.layers), cache);
  v_ = k_;
}

void* PlanInterpreter::address(const Operand& operand) {
  const auto index = static_cast<std::size_t>(operand.index);
  switch (operand.place) {
    case Place::weight:
      return weights_[index].data();
    case Place::table:
      return tables_[index].data();
    case Place::scratch:
      return reinterpret_cast<std::byte*>(arena_.data()) + operand.offset;
    case Place::kv_k:
      return k_[index].data();
    case Place::kv_v:
      return v_[index].data();
    case Place::control:
      return reinterpret_cast<std::byte*>(&control_) + operand.offset;
    case Place::counters:
      return reinterpret_cast<std::byte*>(counters_.data()) + operand.offset;
    case Place::pages:
      return nullptr;  // of batches
  }
  return nullptr;
}

void PlanInterpreter::run(const Plan& plan) {
  for (const Step& step : plan.steps) {
    std::vector<void*> arguments;
    for (const Operand& operand : step.operands) arguments.push_back(address(operand));
    row(step.key.type).oracle(step.key, arguments, 0, 1);
  }
}

void PlanInterpreter::read(const PrefillPlan& prefill, std::span<const std::int32_t> tokens) {
  std::vector<float> own(static_cast<std::size_t>(prefill.plan.arena_bytes) / sizeof(float),
                         std::numeric_limits<float>::quiet_NaN());
  arena_.swap(own);
  const PrefillChunk chunk{static_cast<std::int32_t>(tokens.size()), position_};
  auto* words = static_cast<std::int32_t*>(address(prefill.chunk));
  std::memcpy(words, &chunk, sizeof chunk);
  std::copy(tokens.begin(), tokens.end(), words + sizeof chunk / sizeof *words);
  run(prefill.plan);
  arena_.swap(own);
  position_ += chunk.tokens;
}

std::span<const float> PlanInterpreter::step(std::int32_t token) {
  control_.token = token;
  control_.position = position_++;
  std::fill(arena_.begin(), arena_.end(), std::numeric_limits<float>::quiet_NaN());
  run(plan_);
  control_.advance();
  return {static_cast<const float*>(address(plan_.logits)),
          static_cast<std::size_t>(plan_.spec.vocab)};
}

}  // namespace lathe::testing
