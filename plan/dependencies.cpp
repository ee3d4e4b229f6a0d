// Owns which steps of a plan must wait for which: those that touch the same bytes, one of them
// writing.
#include <algorithm>

#include "lathe/codegen/kernel_table.h"
#include "lathe/plan/plan.h"

namespace lathe {
namespace {

struct Touch {
  Place place;
  int index;
  std::int64_t begin, end;
  bool writes;
};

bool conflict(const Touch& a, const Touch& b) {
  return (a.writes || b.writes) && a.place == b.place && a.index == b.index && a.begin < b.end &&
         b.begin < a.end;
}

std::vector<Touch> touches(const Step& step) {
  const std::vector<Param> params = row(step.key.type).params(step.key);
  std::vector<Touch> out;
  for (std::size_t i = 0; i < params.size(); ++i) {
    const Operand& operand = step.operands[i];
    // A layer's KV cache counts as a whole; weights, tables and the table of pages are not written.
    if (operand.place == Place::weight || operand.place == Place::table ||
        operand.place == Place::pages)
      continue;
    const bool cache = operand.place == Place::kv_k || operand.place == Place::kv_v;
    out.push_back({operand.place, operand.index, cache ? 0 : operand.offset,
                   cache ? 1 : operand.offset + operand.bytes, params[i].access != Access::read});
  }
  return out;
}

}  // namespace

std::vector<std::vector<int>> step_dependencies(const Plan& plan) {
  const std::size_t count = plan.steps.size();
  std::vector<std::vector<Touch>> touched(count);
  std::vector<std::vector<bool>> before(count, std::vector<bool>(count));  // also through others
  std::vector<std::vector<int>> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    touched[i] = touches(plan.steps[i]);
    // The latest steps first: what they wait for need not be named again.
    for (std::size_t j = i; j-- > 0;) {
      if (before[i][j]) continue;
      const bool waits = std::ranges::any_of(touched[i], [&](const Touch& a) {
        return std::ranges::any_of(touched[j], [&](const Touch& b) { return conflict(a, b); });
      });
      if (!waits) continue;
      out[i].push_back(static_cast<int>(j));
      before[i][j] = true;
      for (std::size_t k = 0; k < j; ++k)
        if (before[j][k]) before[i][k] = true;
    }
  }
  return out;
}

}  // namespace lathe
