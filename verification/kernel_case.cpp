// Owns the words for a case, and the case for a key that is on no list.
#include "verification/kernel_case.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "verification/random.h"

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
  if (!pages.empty()) out += " in pages";
  if (alias >= 0) out += " in place of parameter " + std::to_string(alias);
  return out;
}

std::int64_t KernelCase::place(int first_row, int position) const {
  if (pages.empty()) return std::int64_t{first_row} + position;
  return row_in_pages(pages.data() + first_row, position);
}

KernelCase in_pages(KernelCase c, std::uint64_t seed) {
  constexpr std::int32_t kNobodys = 0x07fffff0;  // a page far outside of any cache
  Random random(seed);
  std::map<int, int> lengths;  // of sequences, by their row of position 0
  for (const BatchRow& each : c.batch) {
    int& length = lengths[each.first_row];
    length = std::max(length, each.position + 1);
  }
  if (c.batch.empty()) lengths[c.first_row] = c.position + std::max(1, c.count);
  int needed = 0;
  for (const auto& [row, length] : lengths) needed += pages_of(length);
  std::vector<std::int32_t> order(static_cast<std::size_t>(needed + needed / 2 + 2));
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = static_cast<std::int32_t>(i);
    std::swap(order[i], order[static_cast<std::size_t>(random.below(static_cast<int>(i) + 1))]);
  }
  c.capacity = static_cast<int>(order.size()) * kPagePositions;

  // Kernels of one position have nothing that says where in the table to begin.
  const bool told = !c.batch.empty() || c.count > 0;
  const bool reads = c.key.type == KernelType::attend_rows;
  std::map<int, int> entries;
  for (const auto& [row, length] : lengths) {
    if (told)
      c.pages.insert(c.pages.end(), static_cast<std::size_t>(1 + random.below(4)), kNobodys);
    entries[row] = static_cast<int>(c.pages.size());
    for (int i = 0; i < pages_of(length); ++i) {
      c.pages.push_back(order.back());
      order.pop_back();
    }
    if (reads)
      c.pages[static_cast<std::size_t>(entries[row])] =
          c.pages[static_cast<std::size_t>(entries.begin()->second)];
  }
  if (told) c.first_row = c.batch.empty() ? entries[c.first_row] : 0;
  for (BatchRow& each : c.batch) each.first_row = entries[each.first_row];
  c.key.paged = true;
  return c;
}

KernelCase case_at(const KernelKey& key, int position) {
  if (key.paged) {
    KernelKey in_a_row = key;
    in_a_row.paged = false;
    return in_pages(case_at(in_a_row, position), 1);
  }
  KernelCase c{.key = key, .token = key.n / 2};
  bool looks_back = false, batch = false, cached = false;
  for (const Param& param : row(key.type).params(key)) {
    const std::string_view name = param.name;
    if (name == "chunk") c.count = key.tokens;
    looks_back = looks_back || name == "chunk" || name == "position";
    batch = batch || name == "rows";
    cached = cached || param.per_position;
  }
  if (key.type == KernelType::top_k || key.type == KernelType::sample)
    c.sampling = {
        .temperature = 1, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1.1f};
  if (batch) {
    for (int i = 0; i < c.count; ++i) c.batch.push_back({position, i * (position + 1), c.sampling});
    if (cached) c.capacity = c.count * (position + 1);
    return c;
  }
  if (looks_back) c.position = position;
  if (cached) c.capacity = position + std::max(1, c.count);
  return c;
}

bool is_f64(const Param& param) {
  return param.element == Element::blocks && param.matrix.format == Format::f64;
}

Cost cost_of(const KernelCase& kernel_case) {
  const KernelKey& key = kernel_case.key;
  Cost cost = row(key.type).cost(key);
  const auto seen_from = [&](std::int64_t position) {
    return key.window > 0 ? std::min<std::int64_t>(key.window, position + 1) : position + 1;
  };
  if (key.type == KernelType::attention || key.type == KernelType::attend) {
    cost.bytes_read *= seen_from(kernel_case.position);
    cost.operations *= seen_from(kernel_case.position);
  } else if (key.type == KernelType::attend_rows) {
    std::int64_t seen = 0;
    for (const BatchRow& each : kernel_case.batch) seen += seen_from(each.position);
    cost.bytes_read *= seen;
    cost.operations *= seen;
  } else if (key.type == KernelType::attend_tokens) {
    // The cache is read once by a chunk, each of whose tokens sees one position more.
    std::int64_t seen = 0;
    for (int token = 0; token < kernel_case.count; ++token)
      seen += seen_from(kernel_case.position + token);
    const std::int64_t last = kernel_case.position + std::max(1, kernel_case.count) - 1;
    cost.bytes_read *= std::min(last + 1, seen_from(kernel_case.position) + kernel_case.count - 1);
    cost.operations = cost.operations / key.tokens * seen;
  }
  return cost;
}

}  // namespace lathe::verification
