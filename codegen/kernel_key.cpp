// Owns the spelling of keys: text, symbol, parsing, hashing, all from one field table.
#include "lathe/codegen/kernel_key.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <charconv>
#include <cmath>

#include "lathe/codegen/kernel_table.h"

namespace lathe {
namespace {

constexpr std::array kFields = {
    KeyField{"k", "k", "values per row, the reduction length", &KernelKey::k},
    KeyField{"n", "n", "rows, outputs or elements", &KernelKey::n},
    KeyField{"n_b", "nb", "rows of the second matrix", &KernelKey::n_b},
    KeyField{"n_c", "nc", "rows of the third matrix", &KernelKey::n_c},
    KeyField{
        .name = "format_b",
        .tag = "b_",
        .meaning = "of the second matrix, of x (gemv, gemm_operand), of the result (dequantize)",
        .format = &KernelKey::format_b},
    KeyField{.name = "format_c",
             .tag = "c_",
             .meaning = "format of the third matrix",
             .format = &KernelKey::format_c},
    KeyField{"tokens", "m", "tokens of a chunk, at most; rows of x", &KernelKey::tokens},
    KeyField{"heads", "h", "query heads", &KernelKey::heads},
    KeyField{"kv_heads", "kvh", "heads of the KV cache", &KernelKey::kv_heads},
    KeyField{"head_dim", "d", "values per head", &KernelKey::head_dim},
    KeyField{"atoms", "at", "atoms that keys and values are sums of, 0 = none", &KernelKey::atoms},
    KeyField{"terms", "t", "atoms that a key or a value is the sum of", &KernelKey::terms},
    KeyField{"rotary", "rot", "leading values of a head that rotate", &KernelKey::rotary},
    KeyField{"window", "win", "positions attention sees, 0 = all", &KernelKey::window},
    KeyField{"warps", "w", "warps per block", &KernelKey::warps},
    KeyField{"rows", "r", "rows per warp", &KernelKey::rows},
    KeyField{"blocks", "bl", "blocks that share the rows or the work", &KernelKey::blocks},
    KeyField{"stages", "st", "tiles, pairs of tiles or tile columns under way", &KernelKey::stages},
    KeyField{"splits", "s", "parts of the context or vocabulary, or of k among warps",
             &KernelKey::splits},
    KeyField{.name = "grouped",
             .tag = "grouped",
             .meaning = "four warps multiply together (sm_90a)",
             .flag = &KernelKey::grouped},
    KeyField{.name = "paired",
             .tag = "paired",
             .meaning = "a warp multiplies two tiles at once",
             .flag = &KernelKey::paired},
    KeyField{.name = "matrix",
             .tag = "matrix",
             .meaning = "attend: scores and values by the matrix units (cache of f16)",
             .flag = &KernelKey::matrix},
    KeyField{.name = "early",
             .tag = "early",
             .meaning = "may be launched before those it follows have ended (sm_90)",
             .flag = &KernelKey::early},
    KeyField{.name = "epsilon",
             .tag = "eps",
             .meaning = "added to the mean square",
             .real = &KernelKey::epsilon},
    KeyField{.name = "scale",
             .tag = "scale",
             .meaning = "factor on the result, or on q . k and other scores",
             .real = &KernelKey::scale},
    KeyField{.name = "scaled",
             .tag = "scaled",
             .meaning = "each row has a factor, which comes after the product",
             .flag = &KernelKey::scaled},
    KeyField{.name = "bias", .tag = "bias", .meaning = "add a bias", .flag = &KernelKey::bias},
    KeyField{.name = "residual",
             .tag = "res",
             .meaning = "add a residual",
             .flag = &KernelKey::residual},
    KeyField{.name = "gated",
             .tag = "gated",
             .meaning = "rows are gates and ups: y = activation(gate) * up",
             .flag = &KernelKey::gated},
    KeyField{.name = "norm",
             .tag = "norm",
             .meaning = "norm the vector first",
             .flag = &KernelKey::norm},
    KeyField{.name = "joined",
             .tag = "joined",
             .meaning = "norm the vector and add it to the residual stream before that",
             .flag = &KernelKey::joined},
    KeyField{.name = "qk_norm",
             .tag = "qknorm",
             .meaning = "norm queries and keys per head",
             .flag = &KernelKey::qk_norm},
    KeyField{.name = "batched",
             .tag = "batched",
             .meaning = "append_tokens, top_k, sample: each token has a sequence of its own",
             .flag = &KernelKey::batched},
    KeyField{.name = "paged",
             .tag = "paged",
             .meaning = "the KV cache lies in pages of 16 positions, which a table names",
             .flag = &KernelKey::paged},
    KeyField{.name = "masked",
             .tag = "masked",
             .meaning = "argmax, top_k: a bit for each value says whether it may be chosen",
             .flag = &KernelKey::masked},
    KeyField{.name = "pairing",
             .tag = "",
             .meaning = "adjacent or halves",
             .pairing = &KernelKey::pairing},
    KeyField{.name = "activation",
             .tag = "",
             .meaning = "silu, gelu_tanh, gelu_erf or relu",
             .activation = &KernelKey::activation},
    KeyField{.name = "operation",
             .tag = "",
             .meaning = "copy, add, multiply or activate; of gemm: copy or activate",
             .operation = &KernelKey::operation},
    KeyField{.name = "layout",
             .tag = "",
             .meaning = "of the weights: raw (blocks) or tiles",
             .layout = &KernelKey::layout},
};

constexpr const char* kPairings[] = {"adjacent", "halves"};
constexpr const char* kActivations[] = {"silu", "gelu_tanh", "gelu_erf", "relu"};
constexpr const char* kOperations[] = {"copy", "add", "multiply", "activate"};
constexpr const char* kLayouts[] = {"raw", "tiles"};

// A float as decimal digits and an exponent ("125e-3"), the shortest that reads back exactly and
// holds no '.', which separates the parts of a key.
std::string real_text(float value) {
  std::string text = fmt::format("{:e}", value);
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  text.assign(buffer, end.ptr);
  const std::size_t e = text.find('e');
  if (e == std::string::npos) return text;  // inf, nan: refused by every check()
  int exponent = std::stoi(text.substr(e + 1));
  std::string digits = text.substr(0, e);
  if (const std::size_t dot = digits.find('.'); dot != std::string::npos) {
    exponent -= static_cast<int>(digits.size() - dot - 1);
    digits.erase(dot, 1);
  }
  return exponent == 0 ? digits : fmt::format("{}e{}", digits, exponent);
}

template <typename T>
bool parse_number(std::string_view text, T& value) {
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  return end.ec == std::errc() && end.ptr == text.data() + text.size();
}

template <typename Enum, std::size_t N>
bool parse_name(std::string_view text, const char* const (&names)[N], Enum& value) {
  for (std::size_t i = 0; i < N; ++i)
    if (text == names[i]) return value = static_cast<Enum>(i), true;
  return false;
}

// ".w4", ".halves" ...; empty when the field has its default.
std::string part_text(const KernelKey& key, const KeyField& field) {
  // The number of warps is part of how people speak of a kernel, default or not.
  if (is_default(key, field) && field.integer != &KernelKey::warps) return {};
  if (field.integer) return fmt::format(".{}{}", field.tag, key.*field.integer);
  if (field.real) return fmt::format(".{}{}", field.tag, real_text(key.*field.real));
  if (field.flag) return fmt::format(".{}", field.tag);
  if (field.pairing) return fmt::format(".{}", kPairings[static_cast<int>(key.*field.pairing)]);
  if (field.activation)
    return fmt::format(".{}", kActivations[static_cast<int>(key.*field.activation)]);
  if (field.operation)
    return fmt::format(".{}", kOperations[static_cast<int>(key.*field.operation)]);
  if (field.format) return fmt::format(".{}{}", field.tag, row(key.*field.format).name);
  return fmt::format(".{}", kLayouts[static_cast<int>(key.*field.layout)]);
}

// Reads one part of a key's text into the first field it fits. Tags overlap as prefixes ("r" and
// "rot", "s" and "scale"), so the rest of the part must parse too.
bool parse_part(KernelKey& key, std::string_view part) {
  for (const KeyField& field : kFields) {
    if (field.pairing && parse_name(part, kPairings, key.*field.pairing)) return true;
    if (field.activation && parse_name(part, kActivations, key.*field.activation)) return true;
    if (field.operation && parse_name(part, kOperations, key.*field.operation)) return true;
    if (field.layout && parse_name(part, kLayouts, key.*field.layout)) return true;
    const std::string_view tag = field.tag;
    if (tag.empty() || !part.starts_with(tag)) continue;
    const std::string_view rest = part.substr(tag.size());
    if (field.flag && rest.empty()) return key.*field.flag = true;
    if (field.integer && parse_number(rest, key.*field.integer)) return true;
    if (field.real && parse_number(rest, key.*field.real)) return true;
    if (field.format) {
      if (const auto format = format_by_name(rest)) return key.*field.format = *format, true;
    }
  }
  return false;
}

}  // namespace

std::span<const KeyField> key_fields() {
  return kFields;
}

bool is_default(const KernelKey& key, const KeyField& field) {
  static constexpr KernelKey defaults;
  const auto same = [&](auto member) { return !member || key.*member == defaults.*member; };
  return same(field.integer) && same(field.real) && same(field.flag) && same(field.pairing) &&
         same(field.activation) && same(field.operation) && same(field.layout) &&
         same(field.format);
}

std::string KernelKey::text() const {
  std::string out = fmt::format("{}.{}", row(type).name, row(format).name);
  for (const KeyField& field : kFields) out += part_text(*this, field);
  return out;
}

std::string KernelKey::symbol() const {
  std::string out = text();
  for (char& c : out)
    if (c == '.' || c == '-') c = '_';
  return out;
}

Result<KernelKey> parse_key(std::string_view text) {
  const auto next = [&]() {
    const std::size_t dot = text.find('.');
    const std::string_view part = text.substr(0, dot);
    text.remove_prefix(dot == std::string_view::npos ? text.size() : dot + 1);
    return part;
  };
  const std::string whole(text);
  if (text.ends_with('.'))
    return Error{Code::invalid_argument, fmt::format("kernel key '{}' ends in '.'", whole), {}};
  KernelKey key;
  LATHE_ASSIGN(key.type, kernel_type_by_name(next()));
  LATHE_ASSIGN(key.format, format_by_name(next()));
  while (!text.empty()) {
    const std::string_view part = next();
    if (!parse_part(key, part))
      return Error{Code::invalid_argument,
                   fmt::format("'{}' in kernel key '{}' is no field of a key", part, whole),
                   {}};
  }
  return key;
}

Result<void> set_field(KernelKey& key, std::string_view name, std::string_view value) {
  for (const KeyField& field : kFields) {
    if (name != field.name) continue;
    bool good = false;
    if (field.integer) good = parse_number(value, key.*field.integer);
    if (field.real) good = parse_number(value, key.*field.real);
    if (field.pairing) good = parse_name(value, kPairings, key.*field.pairing);
    if (field.activation) good = parse_name(value, kActivations, key.*field.activation);
    if (field.operation) good = parse_name(value, kOperations, key.*field.operation);
    if (field.format) {
      if (const auto format = format_by_name(value)) good = true, key.*field.format = *format;
    }
    if (field.layout) good = parse_name(value, kLayouts, key.*field.layout);
    if (field.flag && (value == "0" || value == "1"))
      key.*field.flag = good = true, key.*field.flag = value == "1";
    if (good) return {};
    return Error{Code::invalid_argument,
                 fmt::format("'{}' is no value for {} ({})", value, field.name, field.meaning),
                 {}};
  }
  std::string known;
  for (const KeyField& field : kFields) known += fmt::format(" {}", field.name);
  return Error{Code::invalid_argument,
               fmt::format("'{}' is no field of a kernel key; fields:{}", name, known),
               {}};
}

std::size_t hash_value(const KernelKey& key) {
  std::uint64_t hash = 0x9e3779b97f4a7c15ull;
  const auto mix = [&](std::uint64_t value) {
    hash ^= value;
    hash *= 0xff51afd7ed558ccdull;
    hash ^= hash >> 32;
  };
  mix(static_cast<std::uint64_t>(key.type) << 8 | static_cast<std::uint64_t>(key.format));
  for (const KeyField& field : kFields) {
    if (field.integer) mix(static_cast<std::uint32_t>(key.*field.integer));
    if (field.real) mix(std::bit_cast<std::uint32_t>(key.*field.real));
    if (field.flag) mix(key.*field.flag);
    if (field.pairing) mix(static_cast<std::uint64_t>(key.*field.pairing));
    if (field.activation) mix(static_cast<std::uint64_t>(key.*field.activation));
    if (field.operation) mix(static_cast<std::uint64_t>(key.*field.operation));
    if (field.format) mix(static_cast<std::uint64_t>(key.*field.format));
    if (field.layout) mix(static_cast<std::uint64_t>(key.*field.layout));
  }
  return hash;
}

}  // namespace lathe
