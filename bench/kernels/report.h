// Owns how measured kernels are told: a table for people, CSV, and JSON that can be read back.
#pragma once

#include <string>
#include <string_view>

#include "bench/kernels/row.h"
#include "lathe/codegen/result.h"

namespace lathe::bench::kernels {

std::string markdown(const Report& report);
std::string csv(const Report& report);
std::string json(const Report& report);
// Of what json() wrote.
Result<Report> parse_report(std::string_view text);
Result<Report> read_report(const std::string& path);
Result<void> write_report(const std::string& path, const Report& report);

}  // namespace lathe::bench::kernels
