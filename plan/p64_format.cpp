// Owns the roles, types and names of P64 containers.
#include "plan/p64_format.h"

#include <fmt/format.h>

#include <charconv>

namespace lathe::p64 {
namespace {

struct RoleName {
  std::uint16_t role;
  bool of_layer;
  const char* name;
};

constexpr RoleName kRoles[] = {
    {0, true, "attn_k.weight"},         {1, true, "attn_v.weight"},
    {2, true, "attn_q.weight"},         {3, true, "attn_output.weight"},
    {4, true, "ffn_gate.weight"},       {5, true, "ffn_up.weight"},
    {6, true, "ffn_down.weight"},       {7, true, "attn_norm.weight"},
    {8, true, "ffn_norm.weight"},       {9, false, "token_embd.weight"},
    {10, false, "output.weight"},       {11, false, "output_norm.weight"},
    {12, true, "attn_sub_norm.weight"}, {13, true, "ffn_sub_norm.weight"},
};

// What families here read besides.
constexpr const char* kLayerNames[] = {"attn_q.bias",         "attn_k.bias",
                                       "attn_v.bias",         "attn_q_norm.weight",
                                       "attn_k_norm.weight",  "post_attention_norm.weight",
                                       "post_ffw_norm.weight"};
constexpr const char* kGlobalNames[] = {"rope_freqs.weight"};

struct ArchitectureNumber {
  const char* name;
  std::uint32_t number;
};
constexpr ArchitectureNumber kArchitectures[] = {
    {"llama", 1}, {"gemma", 2}, {"gemma2", 3}, {"gemma3", 4}, {"gemma4", 5},
    {"qwen2", 6}, {"qwen3", 6}, {"glm4", 7},   {"phi3", 8},   {"deepseek2", 9},
};
constexpr std::uint32_t kOtherArchitecture = 255;

std::string layer_name(std::uint32_t layer, std::string_view name) {
  return fmt::format("blk.{}.{}", layer, name);
}

constexpr Type kTypes[] = {
    {kTypeQ4KSoa, "q4_k_soa",
     [](std::int64_t k, std::int64_t rows) { return k % 256 == 0 ? k / 256 * 160 * rows : 0; }},
    {kTypeTernary, "ternary_base3",
     [](std::int64_t k, std::int64_t rows) { return 4 + (k * rows + 4) / 5; }},
};

}  // namespace

Role role_of(std::string_view name) {
  std::optional<std::uint32_t> layer;
  std::string_view rest = name;
  if (name.starts_with("blk.")) {
    const char* end = name.data() + name.size();
    std::uint32_t number = 0;
    const auto read = std::from_chars(name.data() + 4, end, number);
    if (read.ec != std::errc() || read.ptr == end) return {};
    rest = {read.ptr + 1, end};
    if (name != layer_name(number, rest)) return {};
    layer = number;
  }
  for (const RoleName& row : kRoles)
    if (row.of_layer == layer.has_value() && row.name == rest) return {row.role, layer};
  return {};
}

std::string name_of(std::uint16_t role, std::uint32_t layer, std::uint32_t layers) {
  for (const RoleName& row : kRoles) {
    if (row.role != role || row.of_layer != (layer < layers)) continue;
    return row.of_layer ? layer_name(layer, row.name) : row.name;
  }
  return {};
}

std::uint64_t hash_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

std::string hashed_name(std::uint64_t hash) {
  return fmt::format("tensor.{:016x}", hash);
}

std::unordered_map<std::uint64_t, std::string> names_behind_hashes(std::uint32_t layers) {
  std::unordered_map<std::uint64_t, std::string> names;
  const auto add = [&](std::string name) { names.emplace(hash_of(name), std::move(name)); };
  for (const char* name : kGlobalNames) add(name);
  for (std::uint32_t layer = 0; layer < layers; ++layer)
    for (const char* name : kLayerNames) add(layer_name(layer, name));
  return names;
}

std::uint32_t architecture_number(std::string_view name) {
  for (const ArchitectureNumber& row : kArchitectures)
    if (row.name == name) return row.number;
  return kOtherArchitecture;
}

std::string architecture_name(const Hparams& hparams) {
  for (const ArchitectureNumber& row : kArchitectures) {
    if (row.number != hparams.architecture) continue;
    const bool has_norms = (hparams.architecture_flags & kHasQkNorm) != 0;
    return std::string_view(row.name) == "qwen2" && has_norms ? "qwen3" : row.name;
  }
  return fmt::format("number {} of P64 containers", hparams.architecture);
}

const Type* find_type(std::uint32_t type) {
  for (const Type& row : kTypes)
    if (row.type == type) return &row;
  return nullptr;
}

}  // namespace lathe::p64
