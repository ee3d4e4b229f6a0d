// Owns the figures that follow from a plan: KV sizes, distinct kernels, per-token counts.
#include "lathe/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "lathe/codegen/format.h"
#include "lathe/codegen/kernel_table.h"
#include "lathe/codegen/tile.h"

namespace lathe {
namespace {

// Every operand is read whole, except the embedding table: one row of it.
std::int64_t weight_bytes(const Step& step, const Operand& operand) {
  if (step.key.type == KernelType::embed) return row_bytes(step.key.format, step.key.k);
  return operand.bytes;
}

void count_operands(const Step& step, PlanCounts& counts) {
  const std::vector<Param> params = row(step.key.type).params(step.key);
  for (std::size_t i = 0; i < step.operands.size(); ++i) {
    const Operand& operand = step.operands[i];
    switch (operand.place) {
      case Place::weight:
        counts.weight_bytes_read += weight_bytes(step, operand);
        break;
      case Place::kv_k:
      case Place::kv_v:
      case Place::pages:
        break;
      case Place::table:
      case Place::scratch:
      case Place::control:
      case Place::counters:
        if (params[i].access != Access::write) counts.activation_bytes_read += operand.bytes;
        if (params[i].access != Access::read) counts.activation_bytes_written += operand.bytes;
        break;
    }
  }
}

}  // namespace

std::int64_t WeightSlot::device_bytes() const {
  if (layout == Layout::raw) return bytes;
  const Result<TileShape> shape = tile_shape(format, static_cast<int>(rows), static_cast<int>(k));
  return shape ? shape->bytes() : bytes;
}

KernelKey WeightSlot::retile_key() const {
  KernelKey key{.type = KernelType::retile, .format = format};
  key.n = static_cast<int>(rows);
  key.k = static_cast<int>(k);
  return key;
}

std::string Plan::kv_text() const {
  if (options.atoms.count == 0) return row(options.kv).name;
  return fmt::format("sums of {} of {} atoms", options.atoms.terms, options.atoms.count);
}

int Plan::atom_table(int layer, bool of_values) const {
  if (options.atoms.count == 0) return -1;
  const int first = static_cast<int>(spec.ropes.size());
  return std::ssize(tables) == first + 1 ? first : first + 2 * layer + (of_values ? 1 : 0);
}

std::int64_t Plan::kv_bytes_per_position() const {
  if (options.atoms.count > 0) return std::int64_t{spec.kv_heads} * options.atoms.terms * 4;
  return kv_position_bytes(options.kv, std::int64_t{spec.kv_heads} * spec.head_dim);
}

std::int64_t Plan::kv_positions() const {
  if (options.kv_pages > 0) return std::int64_t{options.kv_pages} * kPagePositions;
  return std::int64_t{options.sequences} * options.context;
}

std::int64_t Plan::kv_bytes_per_layer() const {
  return kv_positions() * kv_bytes_per_position();
}

int Plan::pages_per_sequence() const {
  return pages_of(options.context);
}

std::int64_t Plan::page_table_bytes() const {
  return options.kv_pages > 0 ? std::int64_t{options.sequences} * pages_per_sequence() * 4 : 0;
}

std::int64_t Plan::kv_bytes_read(int length) const {
  std::int64_t positions = 0;
  for (const LayerSpec& layer : spec.per_layer) {
    positions += layer.window > 0 ? std::min(layer.window, length) : length;
  }
  return 2 * positions * kv_bytes_per_position();
}

std::vector<KernelKey> Plan::distinct_keys(std::size_t first) const {
  std::vector<KernelKey> keys;
  std::unordered_set<KernelKey> seen;
  for (std::size_t i = first; i < steps.size(); ++i) {
    if (seen.insert(steps[i].key).second) keys.push_back(steps[i].key);
  }
  return keys;
}

PlanCounts Plan::counts() const {
  PlanCounts counts;
  counts.launches = static_cast<int>(steps.size());
  counts.distinct_kernels = static_cast<int>(distinct_keys().size());
  counts.kv_bytes_per_position = 2 * spec.layers * kv_bytes_per_position();
  for (const Step& step : steps) {
    count_operands(step, counts);
    const Cost cost = row(step.key.type).cost(step.key);
    if (step.key.type == KernelType::attention || step.key.type == KernelType::attend) {
      counts.attention_operations_per_position += cost.operations;
    } else {
      counts.operations += cost.operations;
    }
  }
  return counts;
}

}  // namespace lathe
