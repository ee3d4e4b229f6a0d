// Owns what the host writes into a session's control block, in the order of the session's stream.
//
// Copies are from pageable memory: the driver takes the bytes before it returns.
#include "runtime/control_writer.h"

#include <algorithm>

namespace lathe {
namespace {

// Token and position travel as one 64-bit value.
static_assert(offsetof(ControlBlock, token) == 0 && offsetof(ControlBlock, position) == 4);

}  // namespace

Result<ControlWriter> ControlWriter::make(const Context& context, CUdeviceptr control,
                                          CUstream stream) {
  ControlWriter writer;
  writer.driver_ = &context.driver();
  writer.control_ = control;
  writer.stream_ = stream;
  LATHE_ASSIGN(const int writes_values,
               context.attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS));
  writer.writes_values_ = writes_values != 0;
  return writer;
}

// The value is part of the stream's command, so steps that have not run yet keep theirs however
// many there are. Without that command, a copy does the same.
Result<void> ControlWriter::write_token(std::int32_t token, std::int32_t position) {
  const std::uint64_t value =
      std::uint64_t(std::uint32_t(token)) | std::uint64_t(std::uint32_t(position)) << 32;
  if (writes_values_) {
    LATHE_DRIVER_CALL(*driver_, cuStreamWriteValue64, stream_, control_, value,
                      CU_STREAM_WRITE_VALUE_DEFAULT);
  } else {
    LATHE_DRIVER_CALL(*driver_, cuMemcpyHtoDAsync, control_, &value, sizeof value, stream_);
  }
  return {};
}

Result<void> ControlWriter::write_stops(std::span<const std::int32_t> stops) {
  StopTokens wanted;
  wanted.count = int(stops.size());
  std::ranges::copy(stops, wanted.ids);
  if (wanted == stops_) return {};
  LATHE_DRIVER_CALL(*driver_, cuMemcpyHtoDAsync, control_ + offsetof(ControlBlock, stops), &wanted,
                    sizeof wanted, stream_);
  stops_ = wanted;
  return {};
}

Result<void> ControlWriter::write_sampling(const SamplingState& state, std::size_t offset,
                                           std::size_t bytes) {
  const CUdeviceptr to = control_ + offsetof(ControlBlock, sampling) + CUdeviceptr(offset);
  const auto* from = reinterpret_cast<const std::byte*>(&state) + offset;
  LATHE_DRIVER_CALL(*driver_, cuMemcpyHtoDAsync, to, from, bytes, stream_);
  return {};
}

}  // namespace lathe
