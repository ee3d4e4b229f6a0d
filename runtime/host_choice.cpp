// Owns the choice of a token on the host.
#include "runtime/host_choice.h"

#include <algorithm>
#include <array>
#include <limits>

#include "lathe/codegen/kernel_table.h"
#include "runtime/no_memory.h"

namespace lathe {
namespace {

KernelKey key_of(const Plan& plan, KernelType type) {
  return std::ranges::find(plan.steps, type, [](const Step& step) { return step.key.type; })->key;
}

}  // namespace

HostChoice::HostChoice(const Plan& plan)
    : top_k_(key_of(plan, KernelType::top_k)), sample_(key_of(plan, KernelType::sample)) {}

Result<std::int32_t> HostChoice::choose(std::span<const float> logits, const ChoicePoint& at,
                                        TokenSet allowed) {
  LATHE_TRY(or_no_memory("the logits that are chosen from", [&]() -> Result<void> {
    logits_.assign(logits.begin(), logits.end());
    lists_.resize(std::size_t(top_k_.splits) * kMaxTopK);
    return {};
  }));
  for (std::int32_t id = 0; id < std::ssize(logits); ++id)
    if (!allows(allowed, id)) logits_[std::size_t(id)] = std::numeric_limits<float>::quiet_NaN();
  ChoicePoint point = at;
  std::int32_t sampled = -1;
  const std::array<void*, 5> top_k = {logits_.data(), &point.token, &point.position, &point.rules,
                                      lists_.data()};
  const std::array<void*, 4> sample = {lists_.data(), &point.position, &point.rules, &sampled};
  row(KernelType::top_k).oracle(top_k_, top_k, 0, 1);
  row(KernelType::sample).oracle(sample_, sample, 0, 1);
  return sampled;
}

}  // namespace lathe
