// Owns the looks at a stream: without a pause while an answer is near, then with one.
#include "runtime/stream_wait.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "lathe/runtime/session.h"
#include "runtime/environment.h"

namespace lathe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kDefaultLimit = std::chrono::minutes(5);
// Still a number of the clock's nanoseconds.
constexpr std::chrono::milliseconds kLongestLimit = std::chrono::hours(24 * 365);
// A pause may last longer than it should, and a token is waited for in less time than this.
constexpr std::chrono::milliseconds kWithoutPause{50};
constexpr std::chrono::microseconds kPause{50};

std::uint64_t digest(std::span<std::int32_t> words) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (std::int32_t& word : words) {
    const std::atomic_ref<std::int32_t> arriving(word);
    hash = (hash ^ std::uint32_t(arriving.load(std::memory_order_relaxed))) * 0x100000001b3u;
  }
  return hash;
}

}  // namespace

std::chrono::milliseconds wait_limit_of(const SessionOptions& options) {
  std::chrono::milliseconds limit = options.wait_limit;
  if (limit.count() == 0) limit = read_environment().wait_limit;
  if (limit.count() == 0) limit = kDefaultLimit;
  return std::min(limit, kLongestLimit);
}

Result<void> wait_for_stream(const Context& context, CUstream stream,
                             std::chrono::milliseconds limit, std::span<std::int32_t> signs,
                             const std::function<std::string()>& what, bool late) {
  const Driver& driver = context.driver();
  if (limit.count() < 0)
    return check(driver, driver.cuStreamSynchronize(stream), "cuStreamSynchronize");
  const Clock::time_point start = Clock::now();
  Clock::time_point since = start;
  std::optional<std::uint64_t> seen;
  if (late) seen = digest(signs);
  while (true) {
    const CUresult status = driver.cuStreamQuery(stream);
    if (status == CUDA_SUCCESS) return {};
    if (status != CUDA_ERROR_NOT_READY) {
      // A question that failed says nothing of the work, with whose memory the caller goes on.
      driver.cuStreamSynchronize(stream);
      return driver_error(driver, status, "cuStreamQuery");
    }
    const Clock::time_point now = Clock::now();
    if (now - start > kWithoutPause) std::this_thread::sleep_for(kPause);
    if (now - since <= limit) continue;
    since = now;
    const std::uint64_t sign = digest(signs);
    if (seen == sign) break;
    seen = sign;
  }
  Error error{Code::driver,
              fmt::format("The GPU has not ended {}, and has chosen no token for {} s.", what(),
                          double(limit.count()) / 1000),
              {}};
  context.give_up(std::move(error).with(
      "hint",
      "the context is given up: close its sessions, kernels and device; the GPU may need another "
      "process. For slow devices there is a longer limit (SessionOptions::wait_limit)"));
  return context.enter().error();
}

}  // namespace lathe
