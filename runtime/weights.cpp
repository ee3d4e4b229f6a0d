// Owns the placement of a plan's data on the device and its upload.
#include "runtime/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <span>
#include <thread>
#include <vector>

namespace lathe {
namespace {

constexpr std::int64_t kAlignment = 256;
constexpr std::int64_t kChunk = std::int64_t{32} << 20;
// Copying out of the page cache with one thread is slower than the bus.
constexpr std::size_t kCopyThreads = 8;

constexpr std::uint64_t kGivenBlocksAlignment = 16;

// Where a weight of the plan's is on the device already.
struct Given {
  std::uint64_t address = 0;  // 0: nowhere
  Layout layout = Layout::raw;
};

Result<Given> look_for(const WeightSlot& slot, const DeviceWeights& given) {
  if (!given) return Given{};
  for (const Layout layout : {Layout::tiles, Layout::raw}) {
    if (layout == Layout::tiles && slot.layout != Layout::tiles) continue;
    const bool tiles = layout == Layout::tiles;
    const std::uint64_t address =
        given(slot.name, layout, tiles ? slot.device_bytes() : slot.bytes);
    if (address == 0) continue;
    const std::uint64_t alignment = tiles ? std::uint64_t(kAlignment) : kGivenBlocksAlignment;
    if (address % alignment == 0) return Given{address, layout};
    return Error{Code::invalid_argument,
                 fmt::format("The caller's address {:#x} of tensor {} is not aligned to {} bytes.",
                             address, slot.name, alignment),
                 {}};
  }
  return Given{};
}

// One run of bytes of the pool, and what is to be done for it.
struct Piece {
  std::span<const std::byte> bytes = {};  // to be uploaded; none where `blocks` are
  std::int64_t offset = 0;                // in the pool
  const WeightSlot* tiles = nullptr;      // the slot, if it is to be in tiles
  CUdeviceptr blocks = 0;                 // the caller's, of which tiles are to be made
};

void copy_in_parallel(std::byte* to, std::span<const std::byte> from) {
  constexpr std::size_t kWorthAThread = std::size_t{2} << 20;
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const std::size_t parts =
      std::clamp<std::size_t>(from.size() / kWorthAThread, 1, std::min(cores, kCopyThreads));
  const auto copy = [&](std::size_t part) {
    const std::size_t begin = from.size() * part / parts;
    const std::size_t end = from.size() * (part + 1) / parts;
    std::memcpy(to + begin, from.data() + begin, end - begin);
  };
  std::vector<std::thread> threads;
  std::size_t started = 1;
  try {
    for (; started < parts; ++started) threads.emplace_back(copy, started);
  } catch (const std::system_error&) {
    for (std::size_t part = started; part < parts; ++part) copy(part);
  }
  copy(0);
  for (std::thread& thread : threads) thread.join();
}

// Two pinned buffers: while one is on its way to the device, the other is filled from the file.
class Uploader {
 public:
  static Result<Uploader> open(const Context& context, CUstream stream, std::int64_t total) {
    Uploader uploader(context, stream);
    uploader.chunk_ = std::min(kChunk, std::max<std::int64_t>(total, 1));
    for (Half& half : uploader.halves_) {
      LATHE_ASSIGN(half.buffer,
                   allocate_pinned(context, uploader.chunk_, "weights on their way to the device"));
      LATHE_ASSIGN(half.sent, create_event(context, CU_EVENT_DISABLE_TIMING));
    }
    return uploader;
  }

  Result<void> send(CUdeviceptr to, std::span<const std::byte> bytes) {
    const Driver& driver = context_->driver();
    while (!bytes.empty()) {
      Half& half = halves_[turn_ ^= 1];
      if (half.used) LATHE_DRIVER_CALL(driver, cuEventSynchronize, half.sent.get());
      const auto part = bytes.first(std::min(bytes.size(), std::size_t(chunk_)));
      copy_in_parallel(static_cast<std::byte*>(half.buffer.get()), part);
      LATHE_DRIVER_CALL(driver, cuMemcpyHtoDAsync, to, half.buffer.get(), part.size(), stream_);
      LATHE_DRIVER_CALL(driver, cuEventRecord, half.sent.get(), stream_);
      half.used = true;
      to += part.size();
      bytes = bytes.subspan(part.size());
    }
    return {};
  }

 private:
  struct Half {
    PinnedBuffer buffer;
    Event sent;
    bool used = false;
  };

  Uploader(const Context& context, CUstream stream) : context_(&context), stream_(stream) {}

  const Context* context_;
  CUstream stream_;
  std::int64_t chunk_ = 0;
  std::array<Half, 2> halves_;
  int turn_ = 0;
};

Result<void> retile(DeviceImpl& device, const WeightSlot& slot, CUdeviceptr blocks,
                    CUdeviceptr tiles, CUstream stream) {
  LATHE_ASSIGN(const Kernel* kernel, device.kernel(slot.retile_key()));
  void* parameters[] = {&blocks, &tiles};
  return check(device.driver(), launch_kernel(device.driver(), *kernel, parameters, stream),
               "cuLaunchKernel");
}

// What of the KV cache would fit beside `other` bytes: with the format asked for, and with those
// that take less.
std::string advice(const Plan& plan, std::int64_t free, std::int64_t other) {
  const ModelSpec& spec = plan.spec;
  const int values = spec.kv_heads * spec.head_dim;
  const bool paged = plan.options.kv_pages > 0;
  std::string text;
  std::int64_t most = 0;
  for (const Format format : {plan.options.kv, Format::f16, Format::q8_0}) {
    if (format == Format::q8_0 && (plan.options.fusion != Fusion::full || values % 32 != 0))
      continue;
    const std::int64_t position = plan.options.atoms.count > 0 && format == plan.options.kv
                                      ? plan.kv_bytes_per_position()
                                      : row_bytes(format, values);
    // Of a position of all sequences, or of a page.
    const std::int64_t of_each =
        2 * spec.layers * position * (paged ? kPagePositions : plan.options.sequences);
    const std::int64_t fits = std::min<std::int64_t>(
        (free - other) / of_each, paged ? plan.options.kv_pages : plan.options.context);
    if (fits <= most) continue;
    most = fits;
    const std::string in = fmt::format(" with a KV cache in {}", row(format).name);
    if (text.empty())
      text = (paged ? fmt::format("{} page{}", fits, fits == 1 ? "" : "s")
                    : fmt::format("a context of {} positions", fits)) +
             (format == plan.options.kv ? "" : in) + " would fit";
    else
      text += fmt::format(" (or {}{})", fits, in);
  }
  return text.empty() ? "the weights alone do not fit this device" : text;
}

}  // namespace

std::vector<KernelKey> BoundWeights::keys(const Plan& plan) {
  std::set<KernelKey> keys;
  for (const WeightSlot& slot : plan.weights)
    if (slot.layout == Layout::tiles) keys.insert(slot.retile_key());
  return {keys.begin(), keys.end()};
}

Result<BoundWeights> BoundWeights::upload(DeviceImpl& device, CUstream stream, const GgufFile& file,
                                          const Plan& plan, const SessionOptions& options) {
  const Context& context = device.context();
  BoundWeights bound;
  std::vector<Piece> pieces;
  std::int64_t pool = 0, largest = 0;
  const auto place = [&](Piece piece, std::int64_t device_bytes) {
    piece.offset = pool;
    pool = align_up(pool + device_bytes, kAlignment);
    if (piece.tiles) largest = std::max(largest, std::int64_t(piece.bytes.size()));
    pieces.push_back(piece);
  };
  // By slot: what is read where the caller has it. The others have a piece of the pool, in order.
  std::vector<Given> borrowed;
  for (const WeightSlot& slot : plan.weights) {
    LATHE_ASSIGN(const Given there, look_for(slot, options.device_weights));
    const bool in_place = there.address != 0 && there.layout == slot.layout;
    borrowed.push_back(in_place ? there : Given{});
    if (in_place) {
      bound.borrowed_bytes_ += slot.bytes;
      continue;
    }
    Piece piece;
    if (slot.layout == Layout::tiles) piece.tiles = &slot;
    if (there.address != 0)
      piece.blocks = there.address;
    else
      piece.bytes = file.data(*file.tensor(slot.name));
    place(piece, slot.device_bytes());
  }
  for (const Table& table : plan.tables) {
    const auto bytes = std::as_bytes(std::span(table.values));
    place({.bytes = bytes}, std::int64_t(bytes.size()));
  }
  pool = std::max(pool, kAlignment);  // where all is the caller's
  const std::int64_t kv = kv_pool_bytes(plan);
  const std::int64_t arena = align_up(plan.arena_bytes, kAlignment);
  const std::int64_t control = align_up(std::int64_t(sizeof(ControlBlock)), kAlignment);
  const std::int64_t table = align_up(plan.page_table_bytes(), kAlignment);
  const std::int64_t scratch = arena + control + table + plan.counter_bytes;

  const Driver& driver = context.driver();
  std::size_t free = 0, total = 0;
  LATHE_DRIVER_CALL(driver, cuMemGetInfo, &free, &total);
  const auto explain = [&](Error error) {
    return std::move(error)
        .with("needed", fmt::format("{}", pool + kv + scratch + largest))
        .with("free", fmt::format("{}", free))
        .with("hint", advice(plan, std::int64_t(free), pool + scratch + largest));
  };
  // An allocator of the caller's may have more than the driver calls free.
  if (!context.memory().allocate_device && pool + kv + scratch + largest > std::int64_t(free)) {
    return explain(Error{
        Code::out_of_memory,
        fmt::format("The model does not fit the memory of {}: it needs {} bytes, and {} are free.",
                    context.device_name(), pool + kv + scratch + largest, free),
        {}});
  }
  // What was free may be taken meanwhile, or be in pieces.
  const auto allocate = [&](std::int64_t bytes, const char* what) -> Result<DeviceBuffer> {
    Result<DeviceBuffer> buffer = allocate_device(context, bytes, what);
    if (buffer || buffer.error().code != Code::out_of_memory) return buffer;
    if (context.memory().allocate_device) return buffer;
    return std::move(buffer).error().with(
        "hint", advice(plan, std::int64_t(free), pool + scratch + largest));
  };
  LATHE_ASSIGN(bound.weights_, allocate(pool, "weights"));
  LATHE_ASSIGN(bound.kv_, allocate(kv, "KV cache"));
  LATHE_ASSIGN(bound.scratch_, allocate(scratch, "scratch arena"));

  DeviceBuffer blocks;  // a matrix as the file has it, on its way into tiles
  if (largest > 0) {
    LATHE_ASSIGN(blocks, allocate(largest, "weights on their way into tiles"));
  }
  LATHE_ASSIGN(Uploader uploader, Uploader::open(context, stream, pool));
  // Also after a failure: none of these must go while the stream works with them.
  const StreamRest rest(context, stream);

  // All bits set is NaN: a read of scratch that no kernel has written shows in the logits. The
  // cache starts as zeros, and the control block too.
  LATHE_DRIVER_CALL(driver, cuMemsetD8Async, bound.scratch_.get(), 0xff, std::size_t(arena),
                    stream);
  LATHE_DRIVER_CALL(driver, cuMemsetD8Async, bound.scratch_.get() + arena, 0,
                    std::size_t(scratch - arena), stream);
  LATHE_DRIVER_CALL(driver, cuMemsetD8Async, bound.kv_.get(), 0, std::size_t(kv), stream);

  std::int64_t sent = 0;
  for (const Piece& piece : pieces) {
    CUdeviceptr to = bound.weights_.get() + CUdeviceptr(piece.offset);
    const CUdeviceptr from = piece.blocks ? piece.blocks : blocks.get();
    LATHE_TRY(uploader.send(piece.tiles ? from : to, piece.bytes));
    if (piece.tiles) LATHE_TRY(retile(device, *piece.tiles, from, to, stream));
    sent += std::int64_t(piece.bytes.size());
    if (options.progress) options.progress("uploading weights", sent, pool);
    if (options.cancelled && options.cancelled())
      return Error{Code::cancelled, "The upload of weights was cancelled by the caller.", {}};
  }
  LATHE_DRIVER_CALL(driver, cuStreamSynchronize, stream);

  auto piece = pieces.begin();
  const auto next = [&] { return bound.weights_.get() + std::uint64_t((piece++)->offset); };
  for (const Given& there : borrowed)
    bound.addresses_.weights.push_back(there.address ? there.address : next());
  while (piece != pieces.end()) bound.addresses_.tables.push_back(next());
  place_kv(plan, bound.kv_.get(), bound.addresses_);
  bound.addresses_.scratch = bound.scratch_.get();
  bound.addresses_.control = bound.scratch_.get() + std::uint64_t(arena);
  bound.addresses_.pages = bound.addresses_.control + std::uint64_t(control);
  bound.addresses_.counters = bound.addresses_.pages + std::uint64_t(table);
  return bound;
}

}  // namespace lathe
