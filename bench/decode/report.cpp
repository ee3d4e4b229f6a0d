// Owns the columns, their units, and what stands where nothing was measured.
#include "bench/decode/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/common/table.h"

namespace lathe::bench {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kNotMeasured = "not measured";

std::string file_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

std::string mean_and_deviation(std::span<const double> values) {
  const Statistics found = statistics(values);
  return fmt::format("{:.2f} ± {:.2f}", found.mean, found.deviation);
}

// Two digits behind the point of the largest unit that fits.
std::string scaled(double value, const char* unit) {
  struct Scale {
    double factor;
    const char* prefix;
  };
  for (const Scale scale : {Scale{1e12, "T"}, Scale{1e9, "G"}, Scale{1e6, "M"}, Scale{1e3, "k"}}) {
    if (value >= scale.factor)
      return fmt::format("{:.2f} {}{}", value / scale.factor, scale.prefix, unit);
  }
  return fmt::format("{:.0f} {}", value, unit);
}

std::string parameters(std::int64_t count) {
  const auto value = static_cast<double>(count);
  return value >= 1e9 ? fmt::format("{:.2f} B", value / 1e9) : fmt::format("{:.2f} M", value / 1e6);
}

std::string measured(std::optional<double> value, double factor, int digits) {
  return value ? fmt::format("{:.{}f}", *value * factor, digits) : kNotMeasured;
}

std::string peer_cell(const Row& row) {
  if (!row.peer_rates.empty()) return mean_and_deviation(row.peer_rates);
  return row.peer_error.empty() ? kNotMeasured : "failed";
}

Table tests(std::span<const Row> rows) {
  const bool peer = std::any_of(rows.begin(), rows.end(), [](const Row& row) {
    return !row.peer_rates.empty() || !row.peer_error.empty();
  });
  Table table;
  table.columns = {{"model"},
                   {"size", true},
                   {"params", true},
                   {"executor"},
                   {"kv"},
                   {"test"},
                   {"tokens/s", true},
                   {"ms/token", true},
                   {"GB/s", true},
                   {"% of read", true},
                   {"J/token", true},
                   {"W", true}};
  if (peer) table.columns.insert(table.columns.end(), {{"peer tokens/s", true}, {"ratio", true}});
  for (const Row& row : rows) {
    const SetUp& set_up = *row.set_up;
    const bool prompt = row.test.gen == 0;
    std::vector<std::string>& cells = table.rows.emplace_back();
    cells = {file_name(set_up.model),
             scaled(static_cast<double>(set_up.report.weight_bytes), "B"),
             parameters(set_up.parameters),
             set_up.report.executor,
             lathe::row(set_up.kv).name,
             row.test.name(),
             mean_and_deviation(row.rates),
             fmt::format("{:.3f}", row.milliseconds_per_token()),
             prompt ? "-" : measured(row.bytes_per_second(), 1e-9, 2),
             prompt ? "-" : measured(row.share_of_read_rate(), 100, 1),
             measured(row.joules_per_token, 1, 4),
             measured(row.watts, 1, 0)};
    if (peer) {
      cells.push_back(peer_cell(row));
      cells.push_back(row.ratio_to_peer() ? fmt::format("{:.2f}", *row.ratio_to_peer()) : "-");
    }
  }
  return table;
}

std::string build_cell(const SetUp& set_up) {
  const SessionReport& report = set_up.report;
  const int kernels = report.kernels_built + report.kernels_from_cache;
  if (kernels == 0) return "-";
  std::string cell;
  if (set_up.cold_build_seconds) cell = fmt::format("{:.3f} s cold", *set_up.cold_build_seconds);
  if (set_up.warm_build_seconds)
    cell += fmt::format("{}{:.3f} s warm", cell.empty() ? "" : ", ", *set_up.warm_build_seconds);
  if (cell.empty())
    return fmt::format("{:.3f} s, {} of {} kernels built", report.build_seconds,
                       report.kernels_built, kernels);
  return cell + fmt::format(", {} kernels", kernels);
}

Table sessions(std::span<const Row> rows) {
  Table table;
  table.columns = {{"model"},        {"executor"}, {"kv"},     {"context", true},  {"build"},
                   {"upload", true}, {"routes"},   {"device"}, {"read rate", true}};
  const SetUp* last = nullptr;
  for (const Row& row : rows) {
    const SetUp& set_up = *row.set_up;
    if (&set_up == last) continue;
    last = &set_up;
    table.rows.push_back({file_name(set_up.model), set_up.report.executor,
                          lathe::row(set_up.kv).name, std::to_string(set_up.context),
                          build_cell(set_up), fmt::format("{:.2f} s", set_up.report.upload_seconds),
                          set_up.report.routes, set_up.report.device,
                          set_up.read_rate > 0 ? scaled(set_up.read_rate, "B/s") : kNotMeasured});
  }
  return table;
}

Json or_null(std::optional<double> value) {
  return value ? Json(*value) : Json();
}

void add_set_up(Json& object, const SetUp& set_up) {
  const SessionReport& report = set_up.report;
  object["model"] = file_name(set_up.model);
  object["model_filename"] = set_up.model;
  object["model_size"] = report.weight_bytes;
  object["model_n_params"] = set_up.parameters;
  object["executor"] = report.executor;
  object["kv"] = lathe::row(set_up.kv).name;
  object["context"] = set_up.context;
  object["device"] = report.device;
  object["routes"] = report.routes;
  object["assembler"] = report.assembler;
  object["kernels_built"] = report.kernels_built;
  object["kernels_from_cache"] = report.kernels_from_cache;
  object["build_seconds"] = report.build_seconds;
  object["cold_build_seconds"] = or_null(set_up.cold_build_seconds);
  object["warm_build_seconds"] = or_null(set_up.warm_build_seconds);
  object["upload_seconds"] = report.upload_seconds;
  object["read_bytes_per_second"] = set_up.read_rate > 0 ? Json(set_up.read_rate) : Json();
}

Json row_json(const Row& row) {
  const Statistics found = statistics(row.rates);
  Json object = {{"test", row.test.name()},
                 {"n_prompt", row.test.prompt},
                 {"n_gen", row.test.gen},
                 {"n_depth", row.test.depth},
                 {"repetitions", row.rates.size()},
                 {"avg_ts", found.mean},
                 {"stddev_ts", found.deviation},
                 {"median_ts", found.median},
                 {"min_ts", found.min},
                 {"max_ts", found.max},
                 {"samples_ts", row.rates},
                 {"ms_per_token", row.milliseconds_per_token()},
                 {"bytes_per_token", row.test.gen > 0 ? Json(row.bytes_per_token) : Json()},
                 {"bytes_per_second", or_null(row.bytes_per_second())},
                 {"share_of_read_rate", or_null(row.share_of_read_rate())},
                 {"joules_per_token", or_null(row.joules_per_token)},
                 {"watts", or_null(row.watts)}};
  const bool peer = !row.peer_rates.empty();
  const Statistics peers = statistics(row.peer_rates);
  object["peer_avg_ts"] = peer ? Json(peers.mean) : Json();
  object["peer_stddev_ts"] = peer ? Json(peers.deviation) : Json();
  object["peer_median_ts"] = peer ? Json(peers.median) : Json();
  object["peer_samples_ts"] = row.peer_rates;
  object["ratio_to_peer"] = or_null(row.ratio_to_peer());
  object["peer_error"] = row.peer_error.empty() ? Json() : Json(row.peer_error);
  add_set_up(object, *row.set_up);
  return object;
}

std::string csv_value(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  return value.dump();
}

}  // namespace

std::string markdown(std::span<const Row> rows) {
  if (rows.empty()) return "";
  return tests(rows).markdown() + "\n" + sessions(rows).markdown();
}

std::string json(std::span<const Row> rows) {
  Json array = Json::array();
  for (const Row& row : rows) {
    Json object = row_json(row);
    object["notes"] = row.set_up->report.notes;
    array.push_back(std::move(object));
  }
  // Paths and names in files need not be UTF-8.
  return array.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string csv(std::span<const Row> rows) {
  Table table;
  for (const Row& row : rows) {
    const Json object = row_json(row);
    const bool first = table.columns.empty();
    std::vector<std::string>& cells = table.rows.emplace_back();
    for (const auto& [name, value] : object.items()) {
      if (value.is_array()) continue;
      if (first) table.columns.push_back({name});
      cells.push_back(csv_value(value));
    }
  }
  return rows.empty() ? "" : table.csv();
}

std::string text(std::span<const Row> rows, Output form) {
  switch (form) {
    case Output::markdown:
      return markdown(rows);
    case Output::csv:
      return csv(rows);
    case Output::json:
      return json(rows);
  }
  return "";
}

}  // namespace lathe::bench
