// Owns the way of keys and values between the caches of a sequence and the host: what may be asked
// for, where it lies, and its form outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lathe/runtime/kv.h"
#include "runtime/binding.h"
#include "runtime/driver.h"

namespace lathe {

enum class KvMove : std::uint8_t { to_host, to_cache, clear };

// Bytes that are neighbours in a cache. `host`: null to clear them.
struct KvCopy {
  std::uint64_t cache = 0;
  std::byte* host = nullptr;
  std::size_t bytes = 0;
};

// Moves all of them, after what the sequence's stream has to do, and waits: also after a failure
// none is under way.
using KvMover = std::function<Result<void>(std::span<const KvCopy>, KvMove)>;

Result<void> move_on_host(std::span<const KvCopy> copies, KvMove move);
// Wants the context current.
Result<void> move_on_device(const Driver& driver, CUstream stream, std::span<const KvCopy> copies,
                            KvMove move);

// Where a sequence's positions are in the caches: one after the other from a row on or, where there
// are such, in pages, each with kPagePositions of them.
struct KvPlaces {
  int first_row = 0;
  std::span<const std::int32_t> pages = {};
};

// The caches of one sequence, for the time of a call.
class KvAccess {
 public:
  KvAccess(const Plan& plan, const Addresses& addresses, KvPlaces places,
           std::span<const std::int32_t> tokens, KvMover move)
      : plan_(plan),
        addresses_(addresses),
        places_(places),
        tokens_(tokens),
        move_(std::move(move)) {}

  // Ok when so many values are those of the range.
  Result<void> check_range(const KvRange& range, std::size_t values) const;
  Result<void> read(const KvRange& range, std::span<float> values) const;
  Result<void> write(const KvRange& range, std::span<const float> values) const;
  Result<KvCapture> capture(int positions, int most) const;
  Result<KvSnapshot> snapshot(int length, const GgufFile& file) const;
  // Ok when restore() may be tried.
  Result<void> check(const KvSnapshot& snapshot, const GgufFile& file) const;
  Result<void> restore(const KvSnapshot& snapshot) const;
  static std::uint64_t number_of(const KvSnapshot& snapshot) { return snapshot.number_; }
  // Zeros in all positions that there is room for.
  Result<void> clear() const;

 private:
  std::int64_t width() const { return std::int64_t{plan_.spec.kv_heads} * plan_.spec.head_dim; }
  std::size_t row_bytes() const;
  // Puts the runs of neighbouring rows behind `copies`.
  void add_rows(KvPart part, int layer, int first, int positions, std::byte* host,
                std::vector<KvCopy>& copies) const;
  std::vector<KvCopy> rows_of(const KvRange& range, std::byte* host) const;
  // The first `positions` of all layers, in the order of a snapshot's rows.
  std::vector<KvCopy> all_rows(int positions, std::byte* host) const;
  Result<void> check_length(int length) const;
  void unpack(KvPart part, int layer, std::byte* rows, int positions, float* values) const;
  void pack(KvPart part, int layer, const float* values, int positions, std::byte* rows) const;

  const Plan& plan_;
  const Addresses& addresses_;
  const KvPlaces places_;
  const std::span<const std::int32_t> tokens_;
  const KvMover move_;
};

}  // namespace lathe
