// Owns the figures of a model file.
#include "lathe/plan/model_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "lathe/plan/plan.h"
#include "plan/p64_format.h"

namespace lathe {
namespace {

void add_tensors(const GgufFile& file, ModelReport& report) {
  for (const GgufTensor& tensor : file.tensors()) {
    ++report.tensors;
    report.tensor_bytes += tensor.bytes;
    if (tensor.bytes > report.largest_tensor_bytes || report.largest_tensor.empty()) {
      report.largest_tensor = tensor.name;
      report.largest_tensor_bytes = tensor.bytes;
    }
    const std::string name = tensor_type_name(tensor.ggml_type);
    auto type = std::ranges::find(report.types, name, &ModelReport::Type::name);
    if (type == report.types.end()) type = report.types.insert(type, {name});
    ++type->tensors;
    type->bytes += tensor.bytes;
  }
  std::ranges::stable_sort(report.types, std::greater(), &ModelReport::Type::bytes);
}

// 0: more than can be counted.
std::int64_t kv_bytes(const ModelSpec& spec, int context, Format kv) {
  std::int64_t bytes = kv_position_bytes(kv, std::int64_t{spec.kv_heads} * spec.head_dim);
  for (const int factor : {2, spec.layers, context})
    if (__builtin_mul_overflow(bytes, std::int64_t{factor}, &bytes)) return 0;
  return bytes;
}

}  // namespace

std::string tensor_type_name(std::uint32_t ggml_type) {
  if (const auto format = format_by_ggml_type(ggml_type)) return row(*format).name;
  if (const p64::Type* type = p64::find_type(ggml_type)) return type->name;
  return fmt::format("type {}", ggml_type);
}

Result<ModelReport> report_model(const GgufFile& file, int context, Format kv) {
  if (kv != Format::f16 && kv != Format::f32 && kv != Format::q8_0) {
    return Error{Code::invalid_argument,
                 fmt::format("a KV cache in {} is not possible; f16, f32 or q8_0", row(kv).name),
                 {}};
  }
  ModelReport report;
  const FileFacts& facts = file.facts();
  report.container = facts.container;
  report.version = facts.version;
  report.file_bytes = facts.bytes;
  report.data_offset = facts.data_offset;
  add_tensors(file, report);

  Result<ModelSpec> spec = read_model_spec(file);
  if (!spec) {
    report.refusal = spec.error().message;
    return report;
  }
  report.spec = std::move(spec).value();
  PlanOptions options;
  options.context = context;
  options.kv = kv;
  if (kv == Format::q8_0) options.fusion = Fusion::full;
  const Result<Plan> plan = build_plan(file, report.spec, options);
  if (plan) {
    report.context = plan->options.context;
  } else if (plan.error().code == Code::invalid_argument) {
    return plan.error();
  } else {
    report.refusal = plan.error().message;
    // Of the file or of the cache alone.
    if (kv == Format::q8_0 && build_plan(file, report.spec, {.context = context}))
      report.refusal = fmt::format("with a KV cache in q8_0: {}", report.refusal);
    report.context = context != 0 ? context : std::min(report.spec.context, kDefaultContext);
  }
  report.kv_bytes = kv_bytes(report.spec, report.context, kv);
  return report;
}

}  // namespace lathe
