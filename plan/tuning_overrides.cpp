// Owns the parsing of what is set in place of a choice.
#include "plan/tuning_overrides.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <span>
#include <utility>

#include "lathe/codegen/kernel_table.h"
#include "plan/selection.h"

namespace lathe {
namespace {

constexpr std::size_t kNamesShown = 3;

std::vector<std::string> known_names() {
  std::vector<std::string> known = {"fusion", "executor", "blocks"};
  for (const KernelRow& kernel : kernel_table()) {
    for (const KeyField& field : key_fields())
      if (is_tunable(kernel.type, field))
        known.push_back(fmt::format("{}.{}", kernel.name, field.name));
  }
  return known;
}

std::string listed(std::span<const std::string> names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

// How many characters must be put in, left out or exchanged to make one of the other.
std::size_t characters_apart(std::string_view one, std::string_view other) {
  std::vector<std::size_t> apart(other.size() + 1);  // of what was read of `one` and each beginning
  std::iota(apart.begin(), apart.end(), std::size_t{0});
  for (std::size_t i = 0; i < one.size(); ++i) {
    std::size_t before = std::exchange(apart[0], i + 1);
    for (std::size_t j = 0; j < other.size(); ++j) {
      const std::size_t exchanged = before + (one[i] == other[j] ? 0 : 1);
      before = apart[j + 1];
      apart[j + 1] = std::min({exchanged, apart[j] + 1, before + 1});
    }
  }
  return apart.back();
}

Error refuse(std::string_view word, std::string_view why) {
  return {Code::invalid_argument, fmt::format("the tuning '{}' {}", word, why), {}};
}

// With the known names that are nearest to this one.
Error unknown_name(std::string_view word, std::string_view name) {
  std::vector<std::string> known = known_names();
  std::string all = listed(known);
  std::ranges::stable_sort(known, {},
                           [&](const std::string& other) { return characters_apart(name, other); });
  known.resize(kNamesShown);
  return refuse(word, fmt::format("names no choice; nearest: {}", listed(known)))
      .with("known", std::move(all));
}

constexpr const char* kNoNumber = "has no number above 0";

std::optional<int> number_of(std::string_view value) {
  int number = 0;
  const char* const end = value.data() + value.size();
  const auto [rest, status] = std::from_chars(value.data(), end, number);
  if (status != std::errc{} || rest != end) return std::nullopt;
  return number;
}

Result<TuningOverride> kernel_override(std::string_view word, std::string_view name,
                                       std::string_view value) {
  const std::size_t dot = name.find('.');
  const auto type = kernel_type_by_name(name.substr(0, dot));
  TuningOverride out;
  if (type && dot != name.npos) {
    const auto field = std::ranges::find_if(key_fields(), [&](const KeyField& known) {
      return name.substr(dot + 1) == known.name && is_tunable(*type, known);
    });
    if (field != key_fields().end()) out = {*type, &*field, 0};
  }
  if (!out.field) return unknown_name(word, name);
  const std::optional<int> number = number_of(value);
  if (out.field->flag && number != 0 && number != 1) return refuse(word, "is neither 0 nor 1");
  if (!out.field->flag && number.value_or(0) < 1) return refuse(word, kNoNumber);
  out.value = *number;
  return out;
}

Result<Fusion> fusion_by_name(std::string_view word, std::string_view value) {
  if (value == "none") return Fusion::none;
  if (value == "full") return Fusion::full;
  return refuse(word, "is neither fusion=none nor fusion=full");
}

}  // namespace

std::string TuningOverride::text() const {
  return fmt::format("{}.{}={}", row(type).name, field->name, value);
}

Result<TuningOverrides> parse_tuning(std::string_view text) {
  TuningOverrides out;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    text = comma == text.npos ? std::string_view() : text.substr(comma + 1);
    const std::size_t equals = word.find('=');
    if (equals == word.npos) return refuse(word, "is not of the form NAME=VALUE");
    const std::string_view name = word.substr(0, equals), value = word.substr(equals + 1);
    if (name == "fusion") {
      if (out.fusion) return refuse(word, "is set twice");
      LATHE_ASSIGN(out.fusion, fusion_by_name(word, value));
    } else if (name == "executor") {
      if (!out.executor.empty()) return refuse(word, "is set twice");
      if (value.empty()) return refuse(word, "names no executor");
      out.executor = value;
    } else if (name == "blocks") {
      if (out.blocks) return refuse(word, "is set twice");
      out.blocks = number_of(value);
      if (out.blocks.value_or(0) < 1) return refuse(word, kNoNumber);
    } else {
      LATHE_ASSIGN(const TuningOverride parsed, kernel_override(word, name, value));
      if (std::ranges::any_of(out.kernels,
                              [&](const TuningOverride& other) { return other.names(parsed); }))
        return refuse(word, "is set twice");
      out.kernels.push_back(parsed);
    }
  }
  return out;
}

Result<TuningOverrides> tuning_of(const PlanOptions& options) {
  LATHE_ASSIGN(TuningOverrides out, parse_tuning(options.tuning));
  LATHE_ASSIGN(TuningOverrides measured, parse_tuning(options.measured.value_or("")));
  out.measured_executor = std::move(measured.executor);
  out.blocks_measured = !out.blocks && measured.blocks;
  if (out.blocks_measured) out.blocks = measured.blocks;
  for (TuningOverride& word : measured.kernels) {
    if (std::ranges::any_of(out.kernels,
                            [&](const TuningOverride& set) { return set.names(word); }))
      continue;
    word.measured = true;
    out.kernels.push_back(word);
  }
  return out;
}

}  // namespace lathe
