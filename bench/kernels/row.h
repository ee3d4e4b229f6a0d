// Owns what is known of one measured kernel, and of the machine that all were measured on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/common/statistics.h"

namespace lathe::bench::kernels {

struct Row {
  std::string key;
  std::string route;
  std::string uses;
  int position = 0;             // that the kernel looks at; 0 where it looks at none
  std::vector<double> seconds;  // of a launch, by repetition
  std::int64_t bytes = 0;       // that must be read and written
  std::int64_t operations = 0;
  bool multiplies = false;  // the tokens of a chunk: bound by arithmetic, not by memory
  int registers = 0;        // per thread
  int spill_bytes = 0;      // per thread
  int static_shared_bytes = 0;
  std::int64_t dynamic_shared_bytes = 0;
  std::int64_t cubin_bytes = 0;
  double emit_ms = 0;  // 0: it came from the cache
  double assemble_ms = 0;

  double median() const { return statistics(seconds).median; }
  double bytes_per_second() const { return static_cast<double>(bytes) / median(); }
  double operations_per_second() const { return static_cast<double>(operations) / median(); }
};

struct Report {
  std::string device;
  double read_rate = 0;  // bytes per second of a plain read kernel, in the same process
  std::int64_t cache_bytes = 0;
  std::vector<Row> rows;

  std::optional<double> share_of_read_rate(const Row& row) const {
    if (row.multiplies || read_rate <= 0) return std::nullopt;
    return row.bytes_per_second() / read_rate;
  }
};

}  // namespace lathe::bench::kernels
