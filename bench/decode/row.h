// Owns what is known of one finished test.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/common/statistics.h"
#include "bench/decode/test.h"
#include "lathe/library.h"

namespace lathe::bench {

// An open session, as it was made: the same for all of its tests.
struct SetUp {
  std::string model;  // path
  std::int64_t parameters = 0;
  Format kv = Format::f16;
  int context = 0;
  double read_rate = 0;  // bytes per second; 0 where it is not measured
  SessionReport report;
  // Of opening it: with no kernel from the disk cache, and with all of them. Whatever did not
  // happen is absent.
  std::optional<double> cold_build_seconds;
  std::optional<double> warm_build_seconds;
};

struct Row {
  std::shared_ptr<const SetUp> set_up;
  Test test;
  std::vector<double> rates;  // tokens/s of each repetition
  double bytes_per_token = 0;
  std::optional<double> joules_per_token;
  std::optional<double> watts;
  std::vector<double> peer_rates;  // empty: no peer, or it failed
  std::string peer_error;

  double milliseconds_per_token() const { return 1e3 / statistics(rates).mean; }
  // Nothing for prompts: read in batches, their speed is not that of the memory.
  std::optional<double> bytes_per_second() const {
    if (test.gen == 0) return std::nullopt;
    return bytes_per_token * statistics(rates).mean;
  }
  std::optional<double> share_of_read_rate() const {
    const std::optional<double> rate = bytes_per_second();
    if (!rate || set_up->read_rate == 0) return std::nullopt;
    return *rate / set_up->read_rate;
  }
  // Medians, Lathe over peer.
  std::optional<double> ratio_to_peer() const {
    if (peer_rates.empty()) return std::nullopt;
    return statistics(rates).median / statistics(peer_rates).median;
  }
};

}  // namespace lathe::bench
