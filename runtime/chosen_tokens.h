// Owns the host memory in which the device writes the token that it chose at each position.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <span>

#include "runtime/device_memory.h"
#include "runtime/token_listener.h"

namespace lathe {

class ChosenTokens {
 public:
  // In place of a token that the device has not chosen yet.
  static constexpr std::int32_t kNotYet = std::numeric_limits<std::int32_t>::min();

  ChosenTokens() = default;
  static Result<ChosenTokens> allocate(const Context& context, int positions);

  // Kernels see the memory at the host's address, for unified addressing is what every 64-bit
  // Linux has.
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(memory_.get()); }
  std::span<std::int32_t> all() const {
    return {static_cast<std::int32_t*>(memory_.get()), positions_};
  }
  std::span<std::int32_t> from(int position) const { return all().subspan(std::size_t(position)); }

 private:
  PinnedBuffer memory_;
  std::size_t positions_ = 0;
};

// The next replay of a recorded step that is to be taken.
struct Replays {
  int position = -1;  // -1: none have begun
  std::int32_t token = 0;

  // Ok when they have begun and the next is one at this position.
  Result<void> check_begun(int at) const;
  // Ok when each has chosen its token.
  static Result<void> check_run(std::span<const std::int32_t> chosen);
};

// Tells the tokens as they arrive, until the last of them or a stop token has, the stream has
// nothing left to do, or none has come for `limit`, if that is not below zero: only then true.
bool tell_as_they_arrive(const Driver& driver, CUstream stream, std::chrono::milliseconds limit,
                         std::span<std::int32_t> tokens, std::span<const std::int32_t> stops,
                         TokenListener& listener);

}  // namespace lathe
