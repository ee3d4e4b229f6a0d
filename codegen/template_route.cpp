// Owns the text route: which numbers of a key the PTX templates of ptx_templates/ptx ask for.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "codegen/device_sources.h"
#include "codegen/routes.h"
#include "codegen/template_filler.h"
#include "lathe/codegen/sampling.h"
#include "ptx_templates/ops/launch_shapes.h"

namespace lathe {
namespace {

using Arguments = std::vector<TemplateArgument>;

std::int64_t float_bits(float value) {
  return std::int64_t{std::bit_cast<std::uint32_t>(value)};
}

// What every template asks for.
Arguments common_arguments(const KernelKey& key, const Target& target) {
  return {{"version", target.ptx_version()},
          {"target", target.name()},
          {"entry", key.symbol()},
          {"threads", std::int64_t{row(key.type).geometry(key).threads}}};
}

Result<std::string> filled(const std::string& name, const Arguments& arguments) {
  const std::string_view text = device_source(name);
  if (text.empty())
    return Error{Code::internal, fmt::format("the template {} is not in the library", name), {}};
  return fill_template(name, text, arguments);
}

// A piece that several templates share, filled by itself: they take it as text.
Result<std::string> part(const char* stem, const Arguments& arguments = {}) {
  LATHE_ASSIGN(std::string text, filled(fmt::format("ptx/parts/{}.ptx", stem), arguments));
  if (text.ends_with('\n')) text.pop_back();  // the hole's own line has one
  return text;
}

Result<void> add_part(Arguments& to, const char* stem, const Arguments& arguments = {}) {
  LATHE_ASSIGN(std::string text, part(stem, arguments));
  to.push_back({stem, std::move(text)});
  return {};
}

// Steps of a turn of the template's loop, `most` for one row. A turn for more rows takes fewer: as
// many loads.
int gemv_steps(const KernelKey& key, int most) {
  return std::max(1, most / key.rows);
}

// `step` is the number of values along k that the template takes of a row at once.
Result<void> add_gemv(Arguments& arguments, const KernelKey& key, int step, int steps) {
  LATHE_TRY(add_part(arguments, "finish_rows",
                     {{"n", key.n},
                      {"last_row", key.rows - 1},
                      {"two_steps", std::int64_t{steps == 2}},
                      {"four_steps", std::int64_t{steps == 4}},
                      {"bias", std::int64_t{key.bias}},
                      {"residual", std::int64_t{key.residual}}}));
  arguments.push_back({"bias", std::int64_t{key.bias}});
  arguments.push_back({"residual", std::int64_t{key.residual}});
  arguments.push_back({"rows", key.rows});
  arguments.push_back({"last_row", key.rows - 1});
  arguments.push_back({"steps", steps});
  arguments.push_back({"last_step", steps - 1});
  arguments.push_back({"row_bytes", row_bytes(key.format, key.k)});
  arguments.push_back({"guarded", std::int64_t{key.k % (steps * step) != 0}});
  return {};
}

Result<void> add_gemv_q4_k(Arguments& arguments, const KernelKey& key, const Target& target) {
  LATHE_TRY(add_gemv(arguments, key, 1024, gemv_steps(key, 2)));
  LATHE_TRY(add_part(arguments, "q4_k_scales"));
  arguments.push_back({"n", key.n});
  arguments.push_back({"k", key.k});
  arguments.push_back({"warps", key.warps});
  arguments.push_back({"several_rows", std::int64_t{key.rows > 1}});
  arguments.push_back({"chunked", std::int64_t{key.k > dev::kGemvChunk}});
  // Weights are read once per token and need not displace x. PTX has words for that since 7.4.
  arguments.push_back({"no_allocate", target.ptx >= 74 ? ".L1::no_allocate" : ""});
  return {};
}

Result<void> add_gemv_of(Arguments& arguments, const KernelKey& key, const Target& target) {
  if (key.format == Format::q4_k) return add_gemv_q4_k(arguments, key, target);
  const int steps = gemv_steps(key, 4);
  LATHE_TRY(add_gemv(arguments, key, key.format == Format::q8_0 ? 128 : 256, steps));
  LATHE_TRY(add_part(arguments, "row_of_warp",
                     {{"n", key.n},
                      {"warps", key.warps},
                      {"rows", key.rows},
                      {"several_rows", std::int64_t{key.rows > 1}}}));
  LATHE_TRY(add_part(arguments, "begin_rows",
                     {{"n", key.n},
                      {"last_row", key.rows - 1},
                      {"last_step", steps - 1},
                      {"row_bytes", row_bytes(key.format, key.k)}}));
  arguments.push_back({"blocks", key.k / row(key.format).block});
  return {};
}

Result<void> add_rms_norm(Arguments& arguments, const KernelKey& key, const Target&) {
  const int group = key.k % 4 == 0 ? 4 : 1;  // values; every row starts on 4 * group bytes
  const int groups = key.k / group, threads = key.warps * 32;
  arguments.push_back({"residual", std::int64_t{key.residual}});
  arguments.push_back({"k", key.k});
  arguments.push_back({"warps", key.warps});
  arguments.push_back({"several_warps", std::int64_t{key.warps > 1}});
  arguments.push_back({"fours", std::int64_t{group == 4}});
  arguments.push_back({"last_of_group", group - 1});
  arguments.push_back({"groups", groups});
  arguments.push_back({"group_bytes", group * 4});
  arguments.push_back({"steps", dev::ceil_div(groups, threads)});
  arguments.push_back({"k_bits", float_bits(static_cast<float>(key.k))});
  arguments.push_back({"epsilon_bits", float_bits(key.epsilon)});
  return {};
}

Result<void> add_embed(Arguments& arguments, const KernelKey& key, const Target&) {
  constexpr std::int64_t kTwoTo23 = 0x4b000000;  // as the bits of a float, which integers join
  const bool q4_k = key.format == Format::q4_k, q6_k = key.format == Format::q6_k;
  LATHE_TRY(add_part(arguments, "q4_k_scales"));
  arguments.push_back({"n", key.n});
  arguments.push_back({"units", key.k / 32});
  arguments.push_back({"y_bytes", key.k * std::int64_t{4}});
  arguments.push_back({"row_bytes", row_bytes(key.format, key.k)});
  arguments.push_back({"block_bytes", row(key.format).bytes});
  arguments.push_back({"q4_k", std::int64_t{q4_k}});
  arguments.push_back({"q6_k", std::int64_t{q6_k}});
  arguments.push_back({"q8_0", std::int64_t{key.format == Format::q8_0}});
  arguments.push_back({"distance", q4_k ? 32 : q6_k ? 64 : 16});
  arguments.push_back({"zero_bits", kTwoTo23 + (q4_k ? 0 : q6_k ? 32 : 128)});
  arguments.push_back({"scale_bits", float_bits(key.scale)});
  return {};
}

Result<void> add_rope(Arguments& arguments, const KernelKey& key, const Target&) {
  const bool halves = key.pairing == Pairing::halves;
  arguments.push_back({"heads", key.heads});
  arguments.push_back({"head_dim", key.head_dim});
  arguments.push_back({"rotary", key.rotary});
  arguments.push_back({"pairs", key.rotary / 2});
  arguments.push_back({"halves", std::int64_t{halves}});
  arguments.push_back({"second_bytes", halves ? key.rotary * 2 : 4});
  arguments.push_back({"twos", std::int64_t{!halves && key.head_dim % 2 == 0}});
  return {};
}

Result<void> add_kv_append(Arguments& arguments, const KernelKey& key, const Target&) {
  arguments.push_back({"width", key.kv_heads * key.head_dim});
  arguments.push_back({"value_bytes", row(key.format).bytes});
  arguments.push_back({"halves", std::int64_t{key.format == Format::f16}});
  return {};
}

Result<void> add_attention(Arguments& arguments, const KernelKey& key, const Target&) {
  constexpr int kMostLoads = 4;  // of eight values of a K row, in front of their products
  const int group = key.heads / key.kv_heads;
  const int heads = dev::attention_heads(group, key.head_dim), bytes = row(key.format).bytes;
  const int threads = key.warps * 32, last_pair = dev::ceil_div(key.head_dim, 64) - 1;
  const std::int64_t position_bytes = std::int64_t{key.kv_heads} * key.head_dim * bytes;
  int loads = kMostLoads;
  while (loads > 1 && key.head_dim % (8 * loads) != 0) loads /= 2;
  const bool halves = key.format == Format::f16, ragged = key.head_dim % 64 != 0;
  const bool eights = key.head_dim % 8 == 0;
  const auto positions = [&](int rows) {
    return Arguments{{"rows", rows},
                     {"last_row", rows - 1},
                     {"last_pair", last_pair},
                     {"last_head", heads - 1},
                     {"halves", std::int64_t{halves}},
                     {"ragged", std::int64_t{ragged}},
                     {"position_bytes", position_bytes}};
  };
  LATHE_TRY(add_part(arguments, "exponential"));
  LATHE_ASSIGN(std::string four, part("attention_values", positions(4)));
  LATHE_ASSIGN(std::string one, part("attention_values", positions(1)));
  arguments.push_back({"four_positions", std::move(four)});
  arguments.push_back({"one_position", std::move(one)});
  arguments.push_back({"heads_of_block", heads});
  arguments.push_back({"last_head", heads - 1});
  arguments.push_back({"last_pair", last_pair});
  arguments.push_back({"blocks_of_group", dev::ceil_div(group, heads)});
  arguments.push_back({"group", group});
  arguments.push_back({"head_dim", key.head_dim});
  arguments.push_back({"query_steps", dev::ceil_div(heads * key.head_dim, threads)});
  arguments.push_back({"scale_bits", float_bits(key.scale)});
  arguments.push_back({"window", key.window});
  arguments.push_back({"splits", key.splits});
  arguments.push_back({"warps", key.warps});
  arguments.push_back({"last_warp", key.warps - 1});
  arguments.push_back({"head_bytes", key.head_dim * bytes});
  arguments.push_back({"position_bytes", position_bytes});
  arguments.push_back({"value_bytes", bytes});
  arguments.push_back({"split_bytes", 4 * (key.head_dim + 2)});
  arguments.push_back({"warp_bytes", 4 * (key.head_dim + 2) * heads});
  arguments.push_back({"halves", std::int64_t{halves}});
  arguments.push_back({"ragged", std::int64_t{ragged}});
  arguments.push_back({"eights", std::int64_t{eights}});
  arguments.push_back({"keys_at_once", loads});
  arguments.push_back({"last_load", loads - 1});
  arguments.push_back({"keys_step", eights ? 8 * loads : 2});
  return {};
}

Result<void> add_attention_merge(Arguments& arguments, const KernelKey& key, const Target&) {
  LATHE_TRY(add_part(arguments, "exponential"));
  arguments.push_back({"heads", key.heads});
  arguments.push_back({"head_dim", key.head_dim});
  arguments.push_back({"splits", key.splits});
  arguments.push_back({"split_bytes", 4 * (key.head_dim + 2)});
  arguments.push_back({"head_bytes", std::int64_t{4} * (key.head_dim + 2) * key.splits});
  return {};
}

Result<void> add_glu(Arguments& arguments, const KernelKey& key, const Target&) {
  Arguments activation;
  LATHE_TRY(add_part(activation, "exponential"));
  activation.push_back({"relu", std::int64_t{key.activation == Activation::relu}});
  activation.push_back({"gelu_erf", std::int64_t{key.activation == Activation::gelu_erf}});
  activation.push_back({"gelu_tanh", std::int64_t{key.activation == Activation::gelu_tanh}});
  LATHE_TRY(add_part(arguments, "activation", activation));
  arguments.push_back({"n", key.n});
  return {};
}

Result<void> add_argmax(Arguments& arguments, const KernelKey& key, const Target&) {
  LATHE_TRY(add_part(arguments, "best_of_warp"));
  arguments.push_back({"n", key.n});
  arguments.push_back({"part", dev::ceil_div(key.n, key.splits)});
  arguments.push_back({"warps", key.warps});
  arguments.push_back({"several_warps", std::int64_t{key.warps > 1}});
  return {};
}

Result<void> add_argmax_merge(Arguments& arguments, const KernelKey& key, const Target&) {
  LATHE_TRY(add_part(arguments, "best_of_warp"));
  arguments.push_back({"splits", key.splits});
  return {};
}

// What top_k and sample have in common: a list of candidates for every warp, then one.
Result<void> add_lists(Arguments& arguments, const KernelKey& key) {
  const int rounds = static_cast<int>(std::bit_width(static_cast<unsigned>(key.warps - 1)));
  LATHE_ASSIGN(std::string compared, part("compared"));
  LATHE_ASSIGN(std::string merged, part("merged", {{"compared", std::move(compared)}}));
  LATHE_TRY(add_part(arguments, "block_merged",
                     {{"warps", key.warps}, {"last_round", rounds - 1}, {"merged", merged}}));
  LATHE_TRY(add_part(arguments, "greatest_of_warp"));
  arguments.push_back({"merged", std::move(merged)});
  arguments.push_back({"warps", key.warps});
  arguments.push_back({"temperature_at", std::int64_t{offsetof(SamplingState, temperature)}});
  return {};
}

Result<void> add_top_k(Arguments& arguments, const KernelKey& key, const Target&) {
  const int values = dev::ceil_div(key.n, key.splits), threads = key.warps * 32;
  LATHE_TRY(add_lists(arguments, key));
  LATHE_TRY(add_part(arguments, "compared"));
  LATHE_ASSIGN(
      std::string recent_token,
      part("recent_token", {{"recent", kMaxRepeatLast},
                            {"recent_at", std::int64_t{offsetof(SamplingState, recent)}}}));
  constexpr std::array kCandidates = {std::pair{"greedy_candidate", "GREEDY"},
                                      std::pair{"first_candidate", "FIRST"},
                                      std::pair{"second_candidate", "SECOND"}};
  for (const auto& [name, label] : kCandidates) {
    LATHE_ASSIGN(std::string candidate,
                 part("candidate", {{"label", label},
                                    {"flags", dev::kTopKFlags},
                                    {"exact", std::int64_t{values <= dev::kTopKFlags}},
                                    {"recent_token", recent_token}}));
    arguments.push_back({name, std::move(candidate)});
  }
  arguments.push_back({"recent_token", std::move(recent_token)});
  arguments.push_back({"several_warps", std::int64_t{key.warps > 1}});
  arguments.push_back({"n", key.n});
  arguments.push_back({"part", values});
  arguments.push_back({"flags", dev::kTopKFlags});
  arguments.push_back({"flag_bytes", dev::top_k_flag_bytes(key.n, key.splits)});
  arguments.push_back({"greedy_steps", dev::ceil_div(values, threads)});
  arguments.push_back({"list_steps", dev::ceil_div(values, 2 * threads)});
  arguments.push_back({"repeat_penalty_at", std::int64_t{offsetof(SamplingState, repeat_penalty)}});
  arguments.push_back({"repeat_last_at", std::int64_t{offsetof(SamplingState, repeat_last)}});
  return {};
}

Result<void> add_sample(Arguments& arguments, const KernelKey& key, const Target&) {
  LATHE_TRY(add_lists(arguments, key));
  for (const char* stem : {"candidate_value", "first_place", "exponential"})
    LATHE_TRY(add_part(arguments, stem));
  LATHE_ASSIGN(std::string of_all, part("running_sums", {{"label", "ALL"}}));
  LATHE_ASSIGN(std::string of_kept, part("running_sums", {{"label", "KEPT"}}));
  arguments.push_back({"sums_of_all", std::move(of_all)});
  arguments.push_back({"sums_of_kept", std::move(of_kept)});
  arguments.push_back({"several_warps", std::int64_t{key.warps > 1}});
  arguments.push_back({"splits", key.splits});
  arguments.push_back({"greedy_steps", dev::ceil_div(key.splits, 32)});
  arguments.push_back({"list_steps", dev::ceil_div(key.splits, key.warps)});
  arguments.push_back({"top_k_at", std::int64_t{offsetof(SamplingState, top_k)}});
  arguments.push_back({"min_p_at", std::int64_t{offsetof(SamplingState, min_p)}});
  arguments.push_back({"top_p_at", std::int64_t{offsetof(SamplingState, top_p)}});
  arguments.push_back({"seed_low_at", std::int64_t{offsetof(SamplingState, seed_low)}});
  arguments.push_back({"seed_high_at", std::int64_t{offsetof(SamplingState, seed_high)}});
  return {};
}

struct TemplateOfType {
  KernelType type;
  Result<void> (*add)(Arguments&, const KernelKey&, const Target&);
};
constexpr TemplateOfType kTemplates[] = {
    {KernelType::embed, add_embed},
    {KernelType::rms_norm, add_rms_norm},
    {KernelType::gemv, add_gemv_of},
    {KernelType::rope, add_rope},
    {KernelType::kv_append, add_kv_append},
    {KernelType::attention, add_attention},
    {KernelType::attention_merge, add_attention_merge},
    {KernelType::glu, add_glu},
    {KernelType::argmax, add_argmax},
    {KernelType::argmax_merge, add_argmax_merge},
    {KernelType::top_k, add_top_k},
    {KernelType::sample, add_sample},
};

}  // namespace

Result<std::string> template_ptx(const KernelKey& key, const Target& target) {
  const char* stem = row(key.type).text_template(key);
  if (!stem)
    return Error{Code::not_eligible, fmt::format("no PTX text template covers {}", key.text()), {}};
  const std::string name = fmt::format("ptx/{}.ptx", stem);
  const auto* own = std::ranges::find(kTemplates, key.type, &TemplateOfType::type);
  if (own == std::end(kTemplates))
    return Error{Code::internal, fmt::format("the template {} has no numbers", name), {}};
  Arguments arguments = common_arguments(key, target);
  LATHE_TRY(own->add(arguments, key, target));
  return filled(name, arguments);
}

}  // namespace lathe
