// Owns the placeholders of a peer's command line and the forms of its output.
#include "bench/decode/peer.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "bench/common/subprocess.h"

namespace lathe::bench {

namespace {

using Json = nlohmann::json;

constexpr const char* kExpected =
    "a JSON array or JSON lines with n_prompt, n_gen, n_depth and samples_ts or avg_ts "
    "(llama-bench "
    "-o json), or lines 'tokens/s: NUMBER'";
constexpr std::size_t kShownOutput = 1000;

Error unreadable(std::string message) {
  return Error{Code::invalid_argument, std::move(message), {}}.with("expected", kExpected);
}

void replace_all(std::string& text, std::string_view from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

template <typename Take>
void for_each_line(std::string_view text, Take take) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    take(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// What a program says around its answer is passed over: an array is looked for from each line that
// opens one to the last bracket, objects in single lines.
std::vector<Json> json_records(std::string_view text) {
  std::vector<Json> records;
  std::optional<Json> array;
  const char* end = text.data() + (text.rfind(']') + 1);  // from npos: the start
  for_each_line(text, [&](std::string_view line) {
    const std::string_view start = trimmed(line);
    if (array || start.empty()) return;
    if (start.front() == '[' && start.data() < end) {
      Json whole = Json::parse(start.data(), end, nullptr, false);
      if (whole.is_array()) array = std::move(whole);
    } else if (start.front() == '{') {
      Json one = Json::parse(start.begin(), start.end(), nullptr, false);
      if (one.is_object()) records.push_back(std::move(one));
    }
  });
  if (!array) return records;
  records.assign(array->begin(), array->end());
  return records;
}

int count_of(const Json& record, const char* name) {
  const auto found = record.find(name);
  return found != record.end() && found->is_number_integer() ? found->get<int>() : 0;
}

Test test_of(const Json& record) {
  return {count_of(record, "n_prompt"), count_of(record, "n_gen"), count_of(record, "n_depth")};
}

bool is_rate(double value) {
  return std::isfinite(value) && value > 0;
}

Result<std::vector<double>> rates_of(const Json& record) {
  std::vector<double> rates;
  const auto samples = record.find("samples_ts");
  if (samples != record.end() && samples->is_array() && !samples->empty()) {
    for (const Json& sample : *samples) rates.push_back(sample.is_number() ? double(sample) : 0);
  } else if (const auto mean = record.find("avg_ts"); mean != record.end() && mean->is_number()) {
    rates.push_back(double(*mean));
  } else {
    return unreadable("the peer's record has neither samples_ts nor avg_ts");
  }
  for (double rate : rates) {
    if (!is_rate(rate))
      return unreadable("the peer's record has a speed that is no number above 0");
  }
  return rates;
}

Result<std::vector<double>> rates_of_test(const std::vector<Json>& records, const Test& test) {
  std::string others;
  for (const Json& record : records) {
    if (!record.is_object()) continue;
    const Test found = test_of(record);
    if (found.prompt == test.prompt && found.gen == test.gen && found.depth == test.depth)
      return rates_of(record);
    others += (others.empty() ? "" : ", ") +
              (found.tokens() > 0 ? found.name() : std::string("one without n_prompt and n_gen"));
  }
  return unreadable(fmt::format("the peer printed no record of {}, but {}", test.name(),
                                others.empty() ? "an array without objects" : others));
}

Result<std::vector<double>> rates_of_lines(const std::string& text) {
  constexpr std::string_view kLabel = "tokens/s:";
  std::vector<double> rates;
  std::string wrong;
  for_each_line(text, [&](std::string_view line) {
    line = trimmed(line);
    if (!line.starts_with(kLabel)) return;
    const std::string_view number = trimmed(line.substr(kLabel.size()));
    double rate = 0;
    const auto end = std::from_chars(number.data(), number.data() + number.size(), rate);
    if (end.ec != std::errc() || end.ptr != number.data() + number.size() || !is_rate(rate))
      wrong = line;
    rates.push_back(rate);
  });
  if (!wrong.empty())
    return unreadable(fmt::format("the peer's line '{}' has no number above 0", wrong));
  if (rates.empty()) return unreadable("the peer's output has no speed in it");
  return rates;
}

std::string end_of(std::string_view text) {
  text = trimmed(text);
  if (text.size() > kShownOutput) text.remove_prefix(text.size() - kShownOutput);
  return std::string(text);
}

Error with_output(Error error, const std::string& command_line, const CommandOutput& output) {
  error = std::move(error).with("command", command_line);
  if (!trimmed(output.out).empty())
    error = std::move(error).with("stdout ends", end_of(output.out));
  if (!trimmed(output.err).empty())
    error = std::move(error).with("stderr ends", end_of(output.err));
  return error;
}

}  // namespace

std::string peer_command(std::string pattern, const std::string& model, const Test& test,
                         int repetitions) {
  replace_all(pattern, "{gen}", std::to_string(test.gen));
  replace_all(pattern, "{prompt}", std::to_string(test.prompt));
  replace_all(pattern, "{depth}", std::to_string(test.depth));
  replace_all(pattern, "{reps}", std::to_string(repetitions));
  replace_all(pattern, "{model}", shell_quoted(model));  // last: a path may look like the others
  return pattern;
}

Result<std::vector<double>> parse_peer_output(const std::string& text, const Test& test) {
  const std::vector<Json> records = json_records(text);
  return records.empty() ? rates_of_lines(text) : rates_of_test(records, test);
}

Result<std::vector<double>> run_peer(const std::string& command_line, const Test& test,
                                     const std::function<void()>& waiting) {
  LATHE_ASSIGN(const CommandOutput output, run_command(command_line, waiting));
  if (output.status != 0) {
    Error error{Code::io,
                fmt::format("the peer ended with status {} on {}", output.status, test.name()),
                {}};
    return with_output(std::move(error), command_line, output);
  }
  Result<std::vector<double>> rates = parse_peer_output(output.out, test);
  if (rates) return rates;
  return with_output(std::move(rates).error(), command_line, output);
}

}  // namespace lathe::bench
