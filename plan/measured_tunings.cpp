// Owns the rows of the table of measured tunings, and its text.
#include "lathe/plan/measured_tunings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <locale>
#include <map>
#include <sstream>

#include "lathe/plan/plan.h"
#include "plan/tuning_overrides.h"

namespace lathe {
namespace {

// What bench_tune printed, or bench_decode of two tunings in one run. A class without a row decodes
// fastest by the rules, or was not measured.
constexpr std::string_view kMeasured =
    "90 132 llama 576 1536 q4_1 blocks=96 2287.1 2161.5\n"
    "90 132 llama 3072 8192 q4_k matvec.paired=1 1098.2 996.84\n"
    "90 132 llama 4096 14336 q4_k matvec.paired=1 674.05 662.68\n"
    "90 132 llama 8192 28672 q4_k matvec.paired=1 89.72 87.76\n"
    "90 132 qwen3 1024 3072 q8_0 blocks=99 1989.9 1944.5\n"
    "90 132 qwen3 4096 12288 q4_k matvec.paired=1 621.33 611.99\n";

constexpr std::string_view kHead =
    "# What bench_tune measured (docs/tuning.md): compute capability times ten, multiprocessors,\n"
    "# family, hidden, ffn, format of most weights, tuning, tokens/s with it, and by the rules.\n";

Error refuse(int line, std::string_view why) {
  return {Code::invalid_argument, fmt::format("line {} of the table of tunings {}", line, why), {}};
}

Result<MeasuredTuning> parse_line(int number, const std::string& line) {
  std::istringstream in(line);
  in.imbue(std::locale::classic());  // whatever the program's is
  MeasuredTuning out;
  std::string format, rest;
  TuningClass& of = out.of;
  if (!(in >> of.compute >> of.multiprocessors >> of.family >> of.hidden >> of.ffn >> format >>
        out.words >> out.rate >> out.by_rules) ||
      in >> rest)
    return refuse(number, "is not of the nine columns that it has");
  if (std::min({of.compute, of.multiprocessors, of.hidden, of.ffn}) < 1)
    return refuse(number, "has a number below 1");
  if (!std::isfinite(out.rate) || !std::isfinite(out.by_rules) || out.rate <= 0 ||
      out.by_rules <= 0)
    return refuse(number, "has a speed that is none");
  const Result<Format> weights = format_by_name(format);
  if (!weights) return refuse(number, fmt::format("is wrong: {}", weights.error().message));
  of.weights = *weights;
  const Result<TuningOverrides> words = parse_tuning(out.words);
  if (!words) return refuse(number, fmt::format("is wrong: {}", words.error().message));
  if (words->blocks.value_or(1) > kMostBlocks)
    return refuse(number, fmt::format("has more than {} blocks", kMostBlocks));
  if (words->fusion) return refuse(number, "sets fusion, which is not for a table to choose");
  return out;
}

}  // namespace

TuningClass tuning_class(const GgufFile& file, const ModelSpec& spec, const GpuProfile& gpu) {
  std::map<std::uint32_t, std::int64_t> bytes;
  for (const GgufTensor& tensor : file.tensors())
    if (tensor.dims.size() > 1) bytes[tensor.ggml_type] += tensor.bytes;
  TuningClass out{gpu.compute, gpu.multiprocessors, spec.architecture, spec.hidden, spec.ffn};
  std::int64_t most = 0;
  for (const auto& [type, sum] : bytes) {
    const Result<Format> format = format_by_ggml_type(type);
    if (!format || sum <= most) continue;
    most = sum;
    out.weights = *format;
  }
  return out;
}

Result<std::span<const MeasuredTuning>> measured_tunings() {
  static const Result<std::vector<MeasuredTuning>> tunings = parse_measured_tunings(kMeasured);
  if (!tunings) return tunings.error();
  return std::span<const MeasuredTuning>(*tunings);
}

Result<std::vector<MeasuredTuning>> parse_measured_tunings(std::string_view text) {
  std::vector<MeasuredTuning> out;
  std::istringstream in{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == line.npos || line[first] == '#') continue;
    LATHE_ASSIGN(MeasuredTuning tuning, parse_line(number, line));
    if (find_tuning(out, tuning.of)) return refuse(number, "has a class that another line has");
    out.push_back(std::move(tuning));
  }
  return out;
}

Result<std::vector<MeasuredTuning>> read_measured_tunings(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  // Nothing to insert is no text, and no failure.
  if (file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  if (!file.is_open() || file.bad() || !text) return Error{Code::io, "it cannot be read", {}};
  return parse_measured_tunings(text.str());
}

std::string measured_tunings_text(std::span<const MeasuredTuning> tunings) {
  std::string text(kHead);
  for (const MeasuredTuning& t : tunings)
    text += fmt::format("{} {} {} {} {} {} {} {:.5g} {:.5g}\n", t.of.compute, t.of.multiprocessors,
                        t.of.family, t.of.hidden, t.of.ffn, row(t.of.weights).name, t.words, t.rate,
                        t.by_rules);
  return text;
}

const MeasuredTuning* find_tuning(std::span<const MeasuredTuning> tunings, const TuningClass& of) {
  const auto found = std::ranges::find(tunings, of, &MeasuredTuning::of);
  return found == tunings.end() ? nullptr : &*found;
}

}  // namespace lathe
