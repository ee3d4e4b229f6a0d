// Owns the parsing of what is set in place of a choice.
#include "plan/tuning_overrides.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "lathe/codegen/kernel_table.h"
#include "plan/selection.h"

namespace lathe {
namespace {

std::string known_words() {
  std::string known = "fusion, executor";
  for (const KernelRow& kernel : kernel_table()) {
    for (const KeyField& field : key_fields())
      if (is_tunable(kernel.type, field)) known += fmt::format(", {}.{}", kernel.name, field.name);
  }
  return known;
}

Error refuse(std::string_view word, std::string_view why) {
  return {Code::invalid_argument, fmt::format("the tuning '{}' {}", word, why), {}};
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
  if (!out.field) return refuse(word, fmt::format("names no choice; known: {}", known_words()));
  const char* const end = value.data() + value.size();
  const auto [rest, status] = std::from_chars(value.data(), end, out.value);
  if (status != std::errc{} || rest != end || out.value < 1)
    return refuse(word, "has no number above 0");
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
    } else {
      LATHE_ASSIGN(const TuningOverride parsed, kernel_override(word, name, value));
      const auto same = std::ranges::find_if(out.kernels, [&](const TuningOverride& other) {
        return other.type == parsed.type && other.field == parsed.field;
      });
      if (same != out.kernels.end()) return refuse(word, "is set twice");
      out.kernels.push_back(parsed);
    }
  }
  return out;
}

}  // namespace lathe
