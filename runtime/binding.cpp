// Owns the binding of operands and its checks.
#include "runtime/binding.h"

#include <fmt/format.h>

#include <algorithm>

#include "lathe/codegen/kernel_table.h"

namespace lathe {
namespace {

constexpr std::int64_t kPoolAlignment = 256;

Error unbound(const Plan& plan, const Step& step, const char* parameter, std::string why) {
  const std::string where =
      step.layer < 0 ? step.label : fmt::format("{} of layer {}", step.label, step.layer);
  return Error{Code::internal, fmt::format("Argument {} of step {} {}.", parameter, where, why), {}}
      .with("key", step.key.text())
      .with("model", plan.spec.name);
}

// The address of an operand and the bytes that are there; address 0 when it is out of bounds.
struct Located {
  std::uint64_t address = 0;
  std::int64_t bytes = 0;
};

Located locate(const Plan& plan, const Operand& operand, const Addresses& at, Alignment alignment) {
  const auto pick = [&](const std::vector<std::uint64_t>& list) -> std::uint64_t {
    return operand.index >= 0 && std::size_t(operand.index) < list.size() ? list[operand.index] : 0;
  };
  const auto within = [&](std::uint64_t base, std::int64_t size) -> Located {
    if (operand.offset < 0 || operand.bytes < 0 || operand.bytes > size - operand.offset) return {};
    return {base + std::uint64_t(operand.offset), operand.bytes};
  };
  switch (operand.place) {
    case Place::weight: {
      const std::uint64_t address = pick(at.weights);
      if (!address) return {};
      const WeightSlot& slot = plan.weights[std::size_t(operand.index)];
      return {address, alignment == Alignment::kernel ? slot.device_bytes() : slot.bytes};
    }
    case Place::table: {
      const std::uint64_t address = pick(at.tables);
      const auto count = address ? plan.tables[operand.index].values.size() : 0;
      return {address, std::int64_t(count * sizeof(float))};
    }
    case Place::scratch:
      return within(at.scratch, plan.arena_bytes);
    case Place::kv_k:
      return {pick(at.kv_k), plan.kv_bytes_per_layer()};
    case Place::kv_v:
      return {pick(at.kv_v), plan.kv_bytes_per_layer()};
    case Place::control:
      return within(at.control, sizeof(ControlBlock));
    case Place::counters:
      return within(at.counters, plan.counter_bytes);
    case Place::pages:
      return {at.pages, plan.page_table_bytes()};
  }
  return {};
}

int element_alignment(const KernelKey& key, const Param& param) {
  switch (param.element) {
    case Element::f32:
    case Element::i32:
      return 4;
    case Element::blocks:
    case Element::tiles:
      return row(param.matrix.format).alignment;
    case Element::kv:
      return row(key.format).alignment;
    case Element::f16:
      return 2;
  }
  return 1;
}

}  // namespace

Result<BoundPlan> BoundPlan::bind(const Plan& plan, const Addresses& addresses,
                                  Alignment alignment) {
  BoundPlan bound;
  bound.first_.push_back(0);
  for (const Step& step : plan.steps) {
    const std::vector<Param> params = row(step.key.type).params(step.key);
    if (params.size() != step.operands.size()) {
      return unbound(
          plan, step, "list",
          fmt::format("has {} operands for {} parameters", step.operands.size(), params.size()));
    }
    for (std::size_t i = 0; i < params.size(); ++i) {
      const Param& param = params[i];
      const Located located = locate(plan, step.operands[i], addresses, alignment);
      const std::int64_t times =
          param.per_position ? std::min<std::int64_t>(plan.options.context, plan.kv_positions())
          : param.per_page   ? std::int64_t{plan.options.sequences} * plan.pages_per_sequence()
                             : 1;
      if (located.address == 0) return unbound(plan, step, param.name, "is not bound");
      const std::int64_t bytes =
          (alignment == Alignment::kernel ? param.bytes : param.oracle_bytes()) * times;
      if (located.bytes < bytes) {
        return unbound(
            plan, step, param.name,
            fmt::format("has {} bytes of the {} the kernel may touch", located.bytes, bytes));
      }
      const int needed =
          alignment == Alignment::kernel ? param.alignment : element_alignment(step.key, param);
      if (located.address % std::uint64_t(needed) != 0) {
        return unbound(plan, step, param.name, fmt::format("is not aligned to {} bytes", needed));
      }
      bound.values_.push_back(located.address);
    }
    bound.first_.push_back(bound.values_.size());
  }
  for (std::uint64_t& value : bound.values_) {
    bound.pointers_.push_back(&value);
    bound.host_.push_back(reinterpret_cast<void*>(static_cast<std::uintptr_t>(value)));
  }
  return bound;
}

std::int64_t align_up(std::int64_t bytes, std::int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

std::int64_t kv_stride(const Plan& plan) {
  return align_up(plan.kv_bytes_per_layer(), kPoolAlignment);
}

std::int64_t kv_pool_bytes(const Plan& plan) {
  return 2 * plan.spec.layers * kv_stride(plan);
}

void place_kv(const Plan& plan, std::uint64_t base, Addresses& addresses) {
  const auto stride = std::uint64_t(kv_stride(plan));
  for (int layer = 0; layer < plan.spec.layers; ++layer) {
    addresses.kv_k.push_back(base + 2 * layer * stride);
    addresses.kv_v.push_back(base + (2 * layer + 1) * stride);
  }
}

}  // namespace lathe
