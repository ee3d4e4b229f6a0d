// Owns the reading of prompts.
#include "runtime/prefill.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "runtime/eligibility.h"

namespace lathe {
namespace {

Result<std::optional<PrefillPlan>> none_for(const Error& error, std::vector<std::string>& notes) {
  if (!another_executor_may_do(error)) return error;
  notes.push_back("prompts are read token by token: " + error.message);
  return std::optional<PrefillPlan>();
}

}  // namespace

Result<std::optional<PrefillPlan>> plan_prefill(const DeviceImpl& device, const Plan& decoding,
                                                std::vector<std::string>& notes) {
  if (decoding.options.chunk == 0 || decoding.options.fusion != Fusion::full)
    return std::optional<PrefillPlan>();
  Result<PrefillPlan> plan = build_prefill_plan(decoding, multiplies_in_groups(device.target()));
  if (!plan) return none_for(plan.error(), notes);
  return prepare_prefill(
      std::move(*plan),
      [&](std::span<const KernelKey> keys) { return device.kernels().check_covered(keys); }, notes);
}

Result<std::optional<PrefillPlan>> prepare_prefill(std::optional<PrefillPlan> plan,
                                                   const HaveKernels& have,
                                                   std::vector<std::string>& notes) {
  if (!plan) return plan;
  if (const auto had = have(plan->plan.distinct_keys()); !had) return none_for(had.error(), notes);
  return plan;
}

std::vector<KernelKey> with_prompts(std::vector<KernelKey> keys,
                                    const std::optional<PrefillPlan>& prompts) {
  if (prompts) std::ranges::copy(prompts->plan.distinct_keys(), std::back_inserter(keys));
  return keys;
}

Result<std::unique_ptr<Prefill>> Prefill::open(DeviceImpl& device, PrefillPlan plan,
                                               const Addresses& weights, ExecutorKind kind,
                                               CUstream stream) {
  std::unique_ptr<Prefill> prefill(new Prefill(device.driver(), std::move(plan), stream));
  LATHE_TRY(prefill->prepare(device, weights, kind));
  return prefill;
}

Result<void> Prefill::prepare(DeviceImpl& device, const Addresses& weights, ExecutorKind kind) {
  const Context& context = device.context();
  const Plan& plan = plan_.plan;
  Result<DeviceBuffer> scratch = allocate_device(context, plan.arena_bytes, "reading of prompts");
  if (!scratch && scratch.error().code == Code::out_of_memory)
    return std::move(scratch).error().with(
        "hint", "a smaller chunk takes less, and chunk 0 none (PlanOptions::chunk)");
  LATHE_ASSIGN(scratch_, std::move(scratch));
  // As in the decoding plan's arena, what nobody has written is NaN.
  LATHE_DRIVER_CALL(driver_, cuMemsetD8Async, scratch_.get(), 0xff, std::size_t(plan.arena_bytes),
                    stream_);
  Addresses addresses = weights;
  addresses.scratch = scratch_.get();
  chunk_ = scratch_.get() + CUdeviceptr(plan_.chunk.offset);
  words_.resize(std::size_t(plan_.chunk.bytes) / sizeof(std::int32_t));
  LATHE_ASSIGN(BoundPlan bound, BoundPlan::bind(plan, addresses, Alignment::kernel));
  bound_.emplace(std::move(bound));
  LATHE_ASSIGN(executor_, plan_executor(device, plan, *bound_, kind, stream_));
  return {};
}

Result<void> Prefill::read(std::span<const std::int32_t> tokens, int position, int first_row) {
  const std::size_t head = sizeof(PrefillChunk) / sizeof(std::int32_t);
  while (!tokens.empty()) {
    const auto part = tokens.first(std::min(tokens.size(), words_.size() - head));
    const PrefillChunk chunk{std::int32_t(part.size()), position, first_row};
    std::memcpy(words_.data(), &chunk, sizeof chunk);
    std::ranges::copy(part, words_.begin() + std::ptrdiff_t(head));
    // From pageable memory: the driver takes the bytes before it returns.
    LATHE_DRIVER_CALL(driver_, cuMemcpyHtoDAsync, chunk_, words_.data(),
                      (head + part.size()) * sizeof(std::int32_t), stream_);
    LATHE_TRY(executor_->launch(stream_, 1));
    position += int(part.size());
    tokens = tokens.subspan(part.size());
  }
  return {};
}

}  // namespace lathe
