// Owns the words for a case, and the case for a key that is on no list.
#include "verification/kernel_case.h"

#include <algorithm>

namespace lathe::verification {

std::string KernelCase::text() const {
  std::string out = key.text();
  if (position > 0 || capacity > 1) out += " at " + std::to_string(position);
  if (count > 0) out += " of " + std::to_string(count) + " tokens";
  if (first_row > 0) out += " from row " + std::to_string(first_row);
  for (const BatchRow& each : batch)
    out += " " + std::to_string(each.position) + "+" + std::to_string(each.first_row);
  if (key.type == KernelType::embed) out += " token " + std::to_string(token);
  if (sampling.temperature > 0) out += " temperature " + std::to_string(sampling.temperature);
  if (sampling.repeat_penalty != 1) out += " penalty " + std::to_string(sampling.repeat_penalty);
  if (values != Values::random) out += " values " + std::to_string(static_cast<int>(values));
  if (alias >= 0) out += " in place of parameter " + std::to_string(alias);
  return out;
}

KernelCase case_at(const KernelKey& key, int position) {
  KernelCase c{.key = key, .position = position, .token = key.n / 2};
  for (const Param& param : row(key.type).params(key)) {
    if (std::string_view(param.name) == "chunk") c.count = key.tokens;
    if (param.per_position) c.capacity = position + 1;
  }
  if (c.capacity > 1) c.capacity += std::max(0, c.count - 1);
  if (key.type == KernelType::top_k || key.type == KernelType::sample)
    c.sampling = {
        .temperature = 1, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1.1f};
  return c;
}

}  // namespace lathe::verification
