// Owns the reading of prompts: the launches of a prefill plan, its scratch memory, and the chunks
// that a prompt is cut into.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lathe/runtime/session.h"
#include "runtime/device_memory.h"
#include "runtime/executor.h"

namespace lathe {

// The plan by which a session with this decoding plan reads prompts. None where they are to be read
// token by token: a note says why, unless the plan's options do or it has a kernel for each
// operation.
Result<std::optional<PrefillPlan>> plan_prefill(const DeviceImpl& device, const Plan& decoding,
                                                std::vector<std::string>& notes);
// That plan once `have` has its kernels; none, and a note, where they cannot be had.
Result<std::optional<PrefillPlan>> prepare_prefill(std::optional<PrefillPlan> plan,
                                                   const HaveKernels& have,
                                                   std::vector<std::string>& notes);

// `keys`, then those of a plan for prompts, if there is one.
std::vector<KernelKey> with_prompts(std::vector<KernelKey> keys,
                                    const std::optional<PrefillPlan>& prompts);

class Prefill {
 public:
  // Everything that reading a prompt needs. `weights`: where a decoding session has its weights,
  // tables and KV cache. The kernels have been prepared. Wants the context current.
  static Result<std::unique_ptr<Prefill>> open(DeviceImpl& device, PrefillPlan plan,
                                               const Addresses& weights, ExecutorKind kind,
                                               CUstream stream);

  // Brings the keys and values of tokens at `position` and after it into the KV cache, whose row
  // `first_row` is the sequence's position 0. Asynchronous; allocates nothing.
  Result<void> read(std::span<const std::int32_t> tokens, int position, int first_row = 0);

 private:
  Prefill(const Driver& driver, PrefillPlan plan, CUstream stream)
      : driver_(driver), plan_(std::move(plan)), stream_(stream) {}
  Result<void> prepare(DeviceImpl& device, const Addresses& weights, ExecutorKind kind);

  const Driver& driver_;
  const PrefillPlan plan_;
  CUstream stream_;
  DeviceBuffer scratch_;
  std::optional<BoundPlan> bound_;
  std::unique_ptr<Executor> executor_;
  CUdeviceptr chunk_ = 0;
  std::vector<std::int32_t> words_;  // of a chunk, on their way to the device
};

}  // namespace lathe
