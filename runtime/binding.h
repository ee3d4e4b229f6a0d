// Owns the step from a plan's operands to addresses: every argument of every launch, looked up and
// checked once, before the first token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lathe/codegen/result.h"
#include "lathe/plan/plan.h"

namespace lathe {

// Where the operands of a plan lie, on a device or on the host.
struct Addresses {
  std::vector<std::uint64_t> weights;  // by weight slot
  std::vector<std::uint64_t> tables;
  std::vector<std::uint64_t> kv_k;  // by layer
  std::vector<std::uint64_t> kv_v;
  std::uint64_t scratch = 0;
  std::uint64_t control = 0;
  std::uint64_t counters = 0;
  std::uint64_t pages = 0;  // of a KV cache in pages
};

// Kernels want the alignment their parameters state; the oracles only that of their elements, for
// they read weights in place from a file that is aligned as it pleases.
enum class Alignment : std::uint8_t { kernel, element };

class BoundPlan {
 public:
  // Refuses a null, misaligned or too small operand, and names the step and the parameter.
  static Result<BoundPlan> bind(const Plan& plan, const Addresses& addresses, Alignment alignment);
  BoundPlan(BoundPlan&&) = default;
  BoundPlan& operator=(BoundPlan&&) = default;

  std::size_t steps() const { return first_.size() - 1; }
  // The addresses a step passes, in the order of its kernel's parameters.
  std::span<std::uint64_t> arguments(std::size_t step) {
    return std::span(values_).subspan(first_[step], first_[step + 1] - first_[step]);
  }
  // The same as cuLaunchKernel takes them: a pointer to each argument.
  void** parameters(std::size_t step) { return pointers_.data() + first_[step]; }
  // The same as an oracle takes them. Only for host addresses.
  std::span<void* const> host_arguments(std::size_t step) const {
    return std::span(host_).subspan(first_[step], first_[step + 1] - first_[step]);
  }

 private:
  BoundPlan() = default;

  std::vector<std::uint64_t> values_;
  std::vector<void*> pointers_;  // into values_
  std::vector<void*> host_;      // values_ as pointers
  std::vector<std::size_t> first_;
};

// Sizes of the KV pool: K of layer 0, V of layer 0, K of layer 1 ..., each on its own 256 bytes.
std::int64_t align_up(std::int64_t bytes, std::int64_t alignment);
std::int64_t kv_stride(const Plan& plan);
std::int64_t kv_pool_bytes(const Plan& plan);
void place_kv(const Plan& plan, std::uint64_t base, Addresses& addresses);

}  // namespace lathe
