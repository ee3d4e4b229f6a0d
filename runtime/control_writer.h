// Owns what the host writes into a session's control block, in the order of the session's stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lathe/plan/plan.h"
#include "runtime/context.h"

namespace lathe {

// None of its calls waits, and all want the context current.
class ControlWriter {
 public:
  ControlWriter() = default;
  static Result<ControlWriter> make(const Context& context, CUdeviceptr control, CUstream stream);

  Result<void> write_token(std::int32_t token, std::int32_t position);
  // Only when they are others than before.
  Result<void> write_stops(std::span<const std::int32_t> stops);
  // So many bytes of the sampling state from `offset` on.
  Result<void> write_sampling(const SamplingState& state, std::size_t offset, std::size_t bytes);

 private:
  const Driver* driver_ = nullptr;
  CUdeviceptr control_ = 0;
  CUstream stream_ = nullptr;
  StopTokens stops_;  // those that the device knows
  bool writes_values_ = false;
};

}  // namespace lathe
