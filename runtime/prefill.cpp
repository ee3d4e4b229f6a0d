// Owns the reading of prompts.
#include "runtime/prefill.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "runtime/eligibility.h"

namespace lathe {
namespace {

// As the plan's options want it; otherwise token by token.
bool reads_in_chunks(const Plan& decoding) {
  return decoding.options.chunk != 0 && decoding.options.fusion == Fusion::full;
}

}  // namespace

Result<std::optional<PrefillPlan>> plan_prefill(const DeviceImpl& device, const Plan& decoding,
                                                const HaveKernels& have,
                                                std::vector<std::string>& notes) {
  if (!reads_in_chunks(decoding)) return std::optional<PrefillPlan>();
  Result<PrefillPlan> plan = build_prefill_plan(decoding, multiplies_in_groups(device.target()));
  Result<void> had;
  if (plan)
    had = have(plan->plan.distinct_keys());
  else
    had = plan.error();
  if (had) return std::optional<PrefillPlan>(std::move(*plan));
  if (!another_executor_may_do(had.error())) return had.error();
  notes.push_back("prompts are read token by token: " + had.error().message);
  return std::optional<PrefillPlan>();
}

std::vector<KernelKey> with_prefill_keys(const DeviceImpl& device, const Plan& decoding,
                                         std::vector<KernelKey> keys) {
  if (!reads_in_chunks(decoding)) return keys;
  if (const auto plan = build_prefill_plan(decoding, multiplies_in_groups(device.target())))
    std::ranges::copy(plan->plan.distinct_keys(), std::back_inserter(keys));
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
