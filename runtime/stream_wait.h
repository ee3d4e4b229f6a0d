// Owns the waiting for a stream, which a launch that never ends must not make endless.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "runtime/context.h"

namespace lathe {

struct SessionOptions;

// SessionOptions::wait_limit, or what stands in its place. Below zero: for ever.
std::chrono::milliseconds wait_limit_of(const SessionOptions& options);

// Waits until the stream has nothing left to do. When it works for `limit` and then for as long
// again without a change of `signs`, host memory that the device writes, the context is given up
// with an error that names `what`. `late`: the first of these times has passed before the call.
// Wants the context current.
Result<void> wait_for_stream(const Context& context, CUstream stream,
                             std::chrono::milliseconds limit, std::span<std::int32_t> signs,
                             const std::function<std::string()>& what, bool late = false);

}  // namespace lathe
