// Owns how a plan is shown: a table for people, JSON for programs.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lathe/codegen/format.h"
#include "lathe/plan/plan.h"

namespace lathe {
namespace {

using Json = nlohmann::ordered_json;

const char* place_name(Place place) {
  switch (place) {
    case Place::weight:
      return "weight";
    case Place::table:
      return "table";
    case Place::scratch:
      return "scratch";
    case Place::kv_k:
      return "kv_k";
    case Place::kv_v:
      return "kv_v";
    case Place::control:
      return "control";
    case Place::counters:
      return "counters";
    case Place::pages:
      return "pages";
  }
  return "unknown";
}

// "blk.0.attn_q.weight", "rope0", "@1024", "k[0]", "control+4".
std::string operand_text(const Plan& plan, const Operand& operand) {
  switch (operand.place) {
    case Place::weight:
      return plan.weights[static_cast<std::size_t>(operand.index)].name;
    case Place::table:
      return plan.tables[static_cast<std::size_t>(operand.index)].name;
    case Place::scratch:
      return fmt::format("@{}", operand.offset);
    case Place::kv_k:
      return fmt::format("k[{}]", operand.index);
    case Place::kv_v:
      return fmt::format("v[{}]", operand.index);
    case Place::control:
      return fmt::format("control+{}", operand.offset);
    case Place::counters:
      return fmt::format("counters+{}", operand.offset);
    case Place::pages:
      return "pages";
  }
  return {};
}

std::int64_t operand_bytes(const Step& step) {
  std::int64_t bytes = 0;
  for (const Operand& operand : step.operands) bytes += operand.bytes;
  return bytes;
}

std::string step_label(const Step& step) {
  return step.layer < 0 ? step.label : fmt::format("{}.{}", step.layer, step.label);
}

std::string operands_text(const Plan& plan, const Step& step) {
  std::string text;
  for (const Operand& operand : step.operands) {
    text += fmt::format("{}{}", text.empty() ? "" : " ", operand_text(plan, operand));
  }
  return text;
}

Json to_json(const ModelSpec& spec) {
  return {{"architecture", spec.architecture},
          {"name", spec.name},
          {"layers", spec.layers},
          {"hidden", spec.hidden},
          {"ffn", spec.ffn},
          {"heads", spec.heads},
          {"kv_heads", spec.kv_heads},
          {"head_dim", spec.head_dim},
          {"vocab", spec.vocab},
          {"context", spec.context},
          {"tied_head", spec.tied_head}};
}

Json to_json(const PlanCounts& counts) {
  return {{"launches", counts.launches},
          {"distinct_kernels", counts.distinct_kernels},
          {"weight_bytes_read", counts.weight_bytes_read},
          {"kv_bytes_per_position", counts.kv_bytes_per_position},
          {"activation_bytes_read", counts.activation_bytes_read},
          {"activation_bytes_written", counts.activation_bytes_written},
          {"operations", counts.operations},
          {"attention_operations_per_position", counts.attention_operations_per_position}};
}

Json to_json(const Operand& operand) {
  return {{"place", place_name(operand.place)},
          {"index", operand.index},
          {"offset", operand.offset},
          {"bytes", operand.bytes}};
}

Json to_json(const Step& step) {
  Json operands = Json::array();
  for (const Operand& operand : step.operands) operands.push_back(to_json(operand));
  return {{"label", step.label},
          {"layer", step.layer},
          {"key", step.key.text()},
          {"operands", std::move(operands)}};
}

Json to_json(const WeightSlot& slot) {
  return {{"name", slot.name},  {"format", row(slot.format).name},
          {"rows", slot.rows},  {"layout", slot.layout == Layout::tiles ? "tiles" : "raw"},
          {"k", slot.k},        {"file_offset", slot.file_offset},
          {"bytes", slot.bytes}};
}

}  // namespace

std::string Plan::to_text() const {
  std::size_t label_width = 5;
  std::size_t key_width = 6;
  for (const Step& step : steps) {
    label_width = std::max(label_width, step_label(step).size());
    key_width = std::max(key_width, step.key.text().size());
  }
  std::string text =
      fmt::format("{} {}: {} layers, hidden {}, ffn {}, {} heads of {} ({} KV), vocabulary {}\n",
                  spec.architecture, spec.name, spec.layers, spec.hidden, spec.ffn, spec.heads,
                  spec.head_dim, spec.kv_heads, spec.vocab);
  text += fmt::format("context {}, KV cache {}{}\n\n", options.context, kv_text(),
                      options.kv_pages > 0 ? fmt::format(" in {} pages", options.kv_pages) : "");
  text += fmt::format("{:>5}  {:<{}}  {:<{}}  {:>11}  operands\n", "step", "label", label_width,
                      "kernel", key_width, "bytes");
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    text +=
        fmt::format("{:>5}  {:<{}}  {:<{}}  {:>11}  {}\n", i, step_label(step), label_width,
                    step.key.text(), key_width, operand_bytes(step), operands_text(*this, step));
  }
  const PlanCounts totals = counts();
  text += fmt::format("\n{} launches of {} kernels per token\n", totals.launches,
                      totals.distinct_kernels);
  text += fmt::format("{} weight bytes read, {} KV bytes per position\n", totals.weight_bytes_read,
                      totals.kv_bytes_per_position);
  text += fmt::format("{} activation bytes read, {} written\n", totals.activation_bytes_read,
                      totals.activation_bytes_written);
  text += fmt::format("{} operations, and {} per visible position\n", totals.operations,
                      totals.attention_operations_per_position);
  text += fmt::format("{} bytes of scratch, {} of KV cache\n", arena_bytes,
                      2 * spec.layers * kv_bytes_per_layer());
  return text;
}

std::string Plan::to_json() const {
  Json json;
  json["model"] = lathe::to_json(spec);
  json["options"] = {{"context", options.context},
                     {"kv", options.atoms.count > 0 ? "atoms" : row(options.kv).name},
                     {"attention_splits", options.attention_splits}};
  if (options.atoms.count > 0) {
    json["options"]["atoms"] = options.atoms.count;
    json["options"]["terms"] = options.atoms.terms;
  }
  json["counts"] = lathe::to_json(counts());
  json["arena_bytes"] = arena_bytes;
  json["kv_bytes_per_layer"] = kv_bytes_per_layer();
  json["logits"] = lathe::to_json(logits);
  json["kernels"] = Json::array();
  for (const KernelKey& key : distinct_keys()) json["kernels"].push_back(key.text());
  json["weights"] = Json::array();
  for (const WeightSlot& slot : weights) json["weights"].push_back(lathe::to_json(slot));
  json["tables"] = Json::array();
  for (const Table& table : tables) {
    json["tables"].push_back({{"name", table.name}, {"values", table.values.size()}});
  }
  json["steps"] = Json::array();
  for (const Step& step : steps) json["steps"].push_back(lathe::to_json(step));
  // A model's name comes from its file and need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lathe
