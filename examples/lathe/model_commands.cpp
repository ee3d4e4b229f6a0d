// Owns what `lathe inspect` and `lathe convert` do and say.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "examples/command_line.h"
#include "examples/lathe/commands.h"
#include "examples/lathe/units.h"
#include "examples/progress_line.h"

namespace lathe::tool {

namespace {

using Json = nlohmann::ordered_json;

std::string shape_text(const GgufTensor& tensor) {
  std::string text;
  for (const std::int64_t extent : tensor.dims)
    text += fmt::format("{}{}", text.empty() ? "" : " x ", extent);
  return text;
}

Json json_of(const GgufFile& file, const ModelReport& report, bool with_tensors) {
  const ModelSpec& spec = report.spec;
  Json types = Json::array();
  for (const ModelReport::Type& type : report.types)
    types.push_back({{"name", type.name}, {"tensors", type.tensors}, {"bytes", type.bytes}});
  Json json = {{"container", container_name(report.container)},
               {"version", report.version},
               {"file_bytes", report.file_bytes},
               {"data_offset", report.data_offset},
               {"tensors", report.tensors},
               {"tensor_bytes", report.tensor_bytes},
               {"largest_tensor", report.largest_tensor},
               {"largest_tensor_bytes", report.largest_tensor_bytes},
               {"types", types},
               {"architecture", spec.architecture},
               {"name", spec.name},
               {"layers", spec.layers},
               {"hidden", spec.hidden},
               {"heads", spec.heads},
               {"kv_heads", spec.kv_heads},
               {"head_dim", spec.head_dim},
               {"vocabulary", spec.vocab},
               {"trained_context", spec.context},
               {"context", report.context},
               {"kv_bytes", report.kv_bytes},
               {"refusal", report.refusal}};
  if (!with_tensors) return json;
  Json tensors = Json::array();
  for (const GgufTensor& tensor : file.tensors())
    tensors.push_back({{"name", tensor.name},
                       {"type", tensor_type_name(tensor.ggml_type)},
                       {"dims", tensor.dims},
                       {"offset", tensor.offset},
                       {"bytes", tensor.bytes}});
  json["tensor_list"] = tensors;
  return json;
}

std::string text_of(const GgufFile& file, const ModelReport& report, const Options& options) {
  const ModelSpec& spec = report.spec;
  std::string text =
      fmt::format("container       {} version {}, {}\ntensors         {}, {} from byte {} on\n",
                  container_name(report.container), report.version, size_text(report.file_bytes),
                  report.tensors, size_text(report.tensor_bytes), report.data_offset);
  for (const ModelReport::Type& type : report.types)
    text += fmt::format("  {:<13} {}, {}\n", type.name,
                        count_text(type.tensors, "tensor", "tensors"), size_text(type.bytes));
  text += fmt::format("largest tensor  {}, {}\n", report.largest_tensor,
                      size_text(report.largest_tensor_bytes));
  if (spec.layers > 0) {
    text += fmt::format(
        "model           {}{}{}\nlayers          {} of {} values, {} heads and {} KV heads of {}\n"
        "vocabulary      {}\ntrained for     {} positions\nKV cache        {} for {} positions in "
        "{}\n",
        spec.architecture, spec.name.empty() ? "" : ": ", spec.name, spec.layers, spec.hidden,
        spec.heads, spec.kv_heads, spec.head_dim, spec.vocab, spec.context,
        size_text(report.kv_bytes), report.context, options.kv);
  }
  text += report.refusal.empty() ? "decodes         yes\n"
                                 : fmt::format("decodes         no: {}\n", report.refusal);
  if (!options.tensors) return text;
  for (const GgufTensor& tensor : file.tensors())
    text += fmt::format("{:>12}  {:>12}  {:<8} {:<20} {}\n", tensor.offset, tensor.bytes,
                        tensor_type_name(tensor.ggml_type), shape_text(tensor), tensor.name);
  return text;
}

}  // namespace

Result<Output> inspect(const Options& options) {
  LATHE_ASSIGN(const Integrity integrity, integrity_by_name(options.integrity));
  LATHE_ASSIGN(const Format kv, format_by_name(options.kv));
  LATHE_ASSIGN(const auto file, GgufFile::open(options.file, integrity));
  LATHE_ASSIGN(const ModelReport report, report_model(*file, options.context, kv));
  if (!options.json) return Output{text_of(*file, report, options), {}};
  const Json json = json_of(*file, report, options.tensors);
  return Output{json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n", {}};
}

Result<Output> convert(const Options& options) {
  LATHE_ASSIGN(const auto file, GgufFile::open(options.file));
  command_line::ProgressLine progress(!options.quiet);
  ConvertOptions wanted;
  LATHE_ASSIGN(wanted.weights, p64_weights_by_name(options.weights));
  wanted.page_bytes = options.page_bytes;
  wanted.progress = [&progress](std::string_view what, std::int64_t done, std::int64_t total) {
    progress.show(what, done, total);
  };
  command_line::note_interrupt();
  wanted.cancelled = command_line::interrupted;
  const Result<void> done = convert_model(*file, options.target, wanted);
  progress.clear();
  if (!done) return done.error();
  const bool to_p64 = file->facts().container == Container::gguf;
  return Output{{},
                fmt::format("{} written, {}\n", options.target,
                            container_name(to_p64 ? Container::p64 : Container::gguf))};
}

}  // namespace lathe::tool
