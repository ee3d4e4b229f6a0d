// Owns the columns and the fields, and their units.
#include "bench/kernels/report.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "bench/common/table.h"

namespace lathe::bench::kernels {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kNone = "-";

std::string number(double value, int digits) {
  return fmt::format("{:.{}f}", value, digits);
}

std::string where(const Row& row) {
  return row.position > 0 ? fmt::format("{} @ d{}", row.key, row.position) : row.key;
}

Json row_json(const Report& report, const Row& row) {
  const Statistics found = statistics(row.seconds);
  const std::optional<double> share = report.share_of_read_rate(row);
  return {{"key", row.key},
          {"route", row.route},
          {"uses", row.uses},
          {"position", row.position},
          {"median_us", found.median * 1e6},
          {"min_us", found.min * 1e6},
          {"max_us", found.max * 1e6},
          {"stddev_us", found.deviation * 1e6},
          {"bytes", row.bytes},
          {"operations", row.operations},
          {"bytes_per_second", row.bytes_per_second()},
          {"share_of_read_rate", share ? Json(*share) : Json()},
          {"operations_per_second", row.operations_per_second()},
          {"multiplies", row.multiplies},
          {"registers", row.registers},
          {"spill_bytes", row.spill_bytes},
          {"static_shared_bytes", row.static_shared_bytes},
          {"dynamic_shared_bytes", row.dynamic_shared_bytes},
          {"cubin_bytes", row.cubin_bytes},
          {"emit_ms", row.emit_ms},
          {"assemble_ms", row.assemble_ms},
          {"samples_seconds", row.seconds}};
}

Row row_of(const Json& object) {
  Row row;
  object.at("key").get_to(row.key);
  object.at("route").get_to(row.route);
  object.at("uses").get_to(row.uses);
  object.at("position").get_to(row.position);
  object.at("bytes").get_to(row.bytes);
  object.at("operations").get_to(row.operations);
  object.at("multiplies").get_to(row.multiplies);
  object.at("registers").get_to(row.registers);
  object.at("spill_bytes").get_to(row.spill_bytes);
  object.at("static_shared_bytes").get_to(row.static_shared_bytes);
  object.at("dynamic_shared_bytes").get_to(row.dynamic_shared_bytes);
  object.at("cubin_bytes").get_to(row.cubin_bytes);
  object.at("emit_ms").get_to(row.emit_ms);
  object.at("assemble_ms").get_to(row.assemble_ms);
  object.at("samples_seconds").get_to(row.seconds);
  return row;
}

std::string csv_value(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  return value.dump();
}

}  // namespace

std::string markdown(const Report& report) {
  Table table;
  table.columns = {{"kernel"},       {"route"},           {"us", true},      {"MB", true},
                   {"GB/s", true},   {"% of read", true}, {"TFLOP/s", true}, {"regs", true},
                   {"spills", true}, {"shared kB", true}, {"emit ms", true}, {"in"}};
  for (const Row& row : report.rows) {
    const std::optional<double> share = report.share_of_read_rate(row);
    const double shared = static_cast<double>(row.static_shared_bytes + row.dynamic_shared_bytes);
    table.rows.push_back(
        {where(row), row.route, number(row.median() * 1e6, 2),
         number(static_cast<double>(row.bytes) * 1e-6, 3), number(row.bytes_per_second() * 1e-9, 1),
         share ? number(*share * 100, 1) : kNone,
         row.multiplies ? number(row.operations_per_second() * 1e-12, 1) : kNone,
         std::to_string(row.registers), std::to_string(row.spill_bytes), number(shared * 1e-3, 1),
         row.emit_ms > 0 ? number(row.emit_ms, 1) : kNone, row.uses});
  }
  return fmt::format("{}; a plain read kernel reaches {:.1f} GB/s; L2 cache of {:.1f} MB\n\n{}",
                     report.device, report.read_rate * 1e-9,
                     static_cast<double>(report.cache_bytes) * 1e-6, table.markdown());
}

std::string csv(const Report& report) {
  Table table;
  for (const Row& row : report.rows) {
    const bool first = table.columns.empty();
    std::vector<std::string>& cells = table.rows.emplace_back();
    const Json object = row_json(report, row);
    for (const auto& [name, value] : object.items()) {
      if (value.is_array()) continue;
      if (first) table.columns.push_back({name});
      cells.push_back(csv_value(value));
    }
  }
  return table.rows.empty() ? "" : table.csv();
}

std::string json(const Report& report) {
  Json object = {{"device", report.device},
                 {"read_bytes_per_second", report.read_rate},
                 {"cache_bytes", report.cache_bytes},
                 {"rows", Json::array()}};
  for (const Row& row : report.rows) object["rows"].push_back(row_json(report, row));
  return object.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Report> parse_report(std::string_view text) {
  try {
    const Json object = Json::parse(text);
    Report report;
    object.at("device").get_to(report.device);
    object.at("read_bytes_per_second").get_to(report.read_rate);
    object.at("cache_bytes").get_to(report.cache_bytes);
    for (const Json& row : object.at("rows")) {
      report.rows.push_back(row_of(row));
      if (report.rows.back().median() > 0) continue;
      return Error{
          Code::corrupt_file, fmt::format("it has no time for {}", report.rows.back().key), {}};
    }
    return report;
  } catch (const Json::exception& error) {
    return Error{
        Code::corrupt_file, fmt::format("it is no report of bench_kernels: {}", error.what()), {}};
  }
}

Result<Report> read_report(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file)
    return Error{Code::io, fmt::format("'{}' cannot be read: {}", path, std::strerror(errno)), {}};
  Result<Report> report = parse_report(text);
  if (report) return report;
  return Error{report.error().code,
               fmt::format("'{}' cannot be used: {}", path, report.error().message),
               {}};
}

Result<void> write_report(const std::string& path, const Report& report) {
  std::ofstream file(path, std::ios::binary);
  if (file << json(report) << std::flush) return {};
  return Error{Code::io, fmt::format("'{}' cannot be written: {}", path, std::strerror(errno)), {}};
}

}  // namespace lathe::bench::kernels
