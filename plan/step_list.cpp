// Owns the steps of a plan while it is built.
#include "plan/step_list.h"

#include <algorithm>
#include <cstddef>

#include "plan/arena.h"

namespace lathe {

Operand StepList::scratch(std::int64_t values) {
  const auto bytes = values * static_cast<std::int64_t>(sizeof(float));
  buffers_.push_back(bytes);
  return {Place::scratch, static_cast<int>(buffers_.size() - 1), 0, bytes};
}

Operand StepList::weight(const WeightList& weights, int index) {
  return {Place::weight, index, 0, weights[index].bytes};
}

Operand StepList::table(const std::vector<Table>& tables, int index) {
  const auto values = tables[static_cast<std::size_t>(index)].values.size();
  return {Place::table, index, 0, static_cast<std::int64_t>(values * sizeof(float))};
}

Operand StepList::token() {
  return {Place::control, 0, offsetof(ControlBlock, token), sizeof(ControlBlock::token)};
}

Operand StepList::position() {
  return {Place::control, 0, offsetof(ControlBlock, position), sizeof(ControlBlock::position)};
}

Operand StepList::sampled() {
  return {Place::control, 0, offsetof(ControlBlock, sampled), sizeof(ControlBlock::sampled)};
}

Operand StepList::sampling() {
  return {Place::control, 0, offsetof(ControlBlock, sampling), sizeof(ControlBlock::sampling)};
}

Operand StepList::counters(int count) {
  const Operand counters{Place::counters, 0, counter_bytes_,
                         static_cast<std::int64_t>(count * sizeof(std::int32_t))};
  counter_bytes_ += (counters.bytes + 15) / 16 * 16;
  return counters;
}

void StepList::add(int layer, std::string label, KernelKey key, std::vector<Operand> operands) {
  steps_.push_back({key, std::move(operands), layer, std::move(label)});
}

void StepList::finish(Plan& plan, const Ends& ends, bool reuse) && {
  std::vector<Lifetime> lifetimes;
  lifetimes.reserve(buffers_.size());
  for (const std::int64_t bytes : buffers_) lifetimes.push_back({bytes, -1, -1});
  for (int s = 0; s < std::ssize(steps_); ++s) {
    for (const Operand& operand : steps_[static_cast<std::size_t>(s)].operands) {
      if (operand.place != Place::scratch) continue;
      Lifetime& lifetime = lifetimes[static_cast<std::size_t>(operand.index)];
      if (lifetime.first < 0) lifetime.first = s;
      lifetime.last = s;
    }
  }
  for (const Operand* end : {&ends.logits, &ends.hidden})
    if (end->bytes > 0)
      lifetimes[static_cast<std::size_t>(end->index)].last = static_cast<int>(steps_.size());
  if (!reuse)
    for (Lifetime& lifetime : lifetimes)
      lifetime = {lifetime.bytes, 0, static_cast<int>(steps_.size())};

  const ArenaLayout layout = place_buffers(lifetimes);
  const auto place = [&](Operand operand) {
    if (operand.place != Place::scratch || operand.bytes == 0) return operand;
    operand.offset += layout.offsets[static_cast<std::size_t>(operand.index)];
    operand.index = 0;
    return operand;
  };
  for (Step& step : steps_) {
    std::transform(step.operands.begin(), step.operands.end(), step.operands.begin(), place);
  }
  plan.steps = std::move(steps_);
  plan.arena_bytes = layout.bytes;
  plan.counter_bytes = counter_bytes_;
  plan.input = place(ends.input);
  plan.logits = place(ends.logits);
  plan.hidden = place(ends.hidden);
}

}  // namespace lathe
