// Owns the figures of a run and their two forms.
#include "examples/decode/summary.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace lathe::decode {

namespace {

using Json = nlohmann::ordered_json;

double tokens_per_second(const Generation& run) {
  return run.step_seconds > 0 ? run.steps / run.step_seconds : 0;
}

double bytes_per_second(const Generation& run) {
  return run.step_seconds > 0 ? static_cast<double>(run.bytes_read) / run.step_seconds : 0;
}

std::string hash_text(std::uint64_t hash) {
  return fmt::format("{:016x}", hash);
}

Json report_json(const Summary& summary) {
  const SessionReport& report = summary.report;
  return {{"device", report.device},
          {"executor", report.executor},
          {"routes", report.routes},
          {"assembler", report.assembler},
          {"kernels_built", report.kernels_built},
          {"kernels_from_cache", report.kernels_from_cache},
          {"build_seconds", report.build_seconds},
          {"build_wait_seconds", report.build_wait_seconds},
          {"upload_seconds", report.upload_seconds},
          {"weight_bytes", report.weight_bytes},
          {"kv_bytes", report.kv_bytes},
          {"scratch_bytes", report.scratch_bytes},
          {"chunk", report.chunk},
          {"context", report.context},
          {"launches", report.launches},
          {"submissions", report.submissions},
          {"bytes_to_device", report.bytes_to_device},
          {"bytes_to_host", report.bytes_to_host},
          {"graph_key", report.graph_key},
          {"tuning", report.tuning},
          {"read_bytes_per_second", summary.read_rate},
          {"notes", summary.notes}};
}

}  // namespace

std::string line(const Summary& summary) {
  const Generation& run = summary.generation;
  std::string text = fmt::format("{} tokens ({})", run.ids.size(), ending_name(run.ending));
  if (run.steps > 0) {
    const double rate = bytes_per_second(run);
    text += fmt::format(", {:.2f} tokens/s, {:.3f} ms/token, {:.2f} GB/s", tokens_per_second(run),
                        1e3 * run.step_seconds / run.steps, rate / 1e9);
    if (summary.read_rate > 0)
      text += fmt::format(" ({:.1f} % of the card's {:.2f} TB/s)", 100 * rate / summary.read_rate,
                          summary.read_rate / 1e12);
  }
  if (run.prompt_seconds > 0) {
    text += fmt::format(", {} tokens of prompt in {:.2f} s, first token after {:.2f} s",
                        run.prompt_fed, run.prompt_seconds, summary.first_token_seconds);
    if (summary.logits_hash) text += ", logits " + hash_text(*summary.logits_hash);
  }
  if (!summary.report.assembler.empty())
    text += fmt::format(
        ", {} kernels built and {} from cache in {:.3f} s, waited for {:.3f} s, weights uploaded "
        "in {:.2f} s",
        summary.report.kernels_built, summary.report.kernels_from_cache,
        summary.report.build_seconds, summary.report.build_wait_seconds,
        summary.report.upload_seconds);
  return text + fmt::format(", {} on {}", summary.report.executor, summary.report.device);
}

std::string json(const Summary& summary) {
  const Generation& run = summary.generation;
  const Json object = {
      {"model", summary.model},
      {"prompt_ids", summary.prompt},
      {"ids", run.ids},
      {"text", summary.text},
      {"ending", ending_name(run.ending)},
      {"logits_xxh3_64", summary.logits_hash ? Json(hash_text(*summary.logits_hash)) : Json()},
      {"open_seconds", summary.open_seconds},
      {"prompt_tokens_fed", run.prompt_fed},
      {"prompt_seconds", run.prompt_seconds},
      {"first_token_seconds", summary.first_token_seconds},
      {"steps", run.steps},
      {"step_seconds", run.step_seconds},
      {"tokens_per_second", tokens_per_second(run)},
      {"bytes_read", run.bytes_read},
      {"bytes_per_second", bytes_per_second(run)},
      {"report", report_json(summary)}};
  // Paths and names in files need not be UTF-8.
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lathe::decode
