// Owns where the sequences of a batch have their positions.
#include "runtime/batch_cache.h"

#include <fmt/format.h>

#include <algorithm>

namespace lathe {

BatchCache::BatchCache(const Plan& plan, const Addresses& addresses, const Driver& driver,
                       CUstream stream)
    : plan_(plan), addresses_(addresses), driver_(driver), stream_(stream) {
  const PlanOptions& options = plan.options;
  if (options.kv_pages == 0) return;
  pages_.emplace(options.sequences, plan.pages_per_sequence(), options.kv_pages);
  // So that steps allocate nothing.
  copies_.reserve(kMostBatchRows);
  held_.reserve(kMostBatchRows);
}

int BatchCache::first_row(int sequence) const {
  return pages_ ? int(pages_->first_entry(sequence)) : sequence * plan_.options.context;
}

KvPlaces BatchCache::places(int sequence) const {
  if (pages_) return {0, pages_->of(sequence)};
  return {first_row(sequence), {}};
}

Result<void> BatchCache::check(std::span<const PositionRange> ranges) {
  if (!pages_) return {};
  return check_free(ranges, pages_->needed(ranges), pages_->free());
}

Result<void> BatchCache::check_again(const PositionRange& whole) {
  if (!pages_) return {};
  return check_free({&whole, 1}, pages_of(whole.end),
                    pages_->free() + pages_->freed(whole.sequence, 0));
}

Result<void> BatchCache::check_free(std::span<const PositionRange> ranges, int needed,
                                    int free) const {
  if (needed <= free) return {};
  const std::int64_t bytes =
      2 * plan_.spec.layers * std::int64_t{kPagePositions} * plan_.kv_bytes_per_position();
  const std::string who = ranges.size() == 1
                              ? fmt::format("Sequence {} needs", ranges[0].sequence)
                              : fmt::format("The step's {} sequences need", ranges.size());
  return Error{
      Code::out_of_memory,
      fmt::format("{} {} more page{} of the KV cache, and of its {} pages {} {} free.", who, needed,
                  needed == 1 ? "" : "s", pages_->all(), free, free == 1 ? "is" : "are"),
      {}}
      .with("needed", fmt::format("{}", needed * bytes))
      .with("free", fmt::format("{}", free * bytes))
      .with("hint",
            "let a sequence leave or roll back, or open the batch with more "
            "(BatchOptions::kv_pages)");
}

Result<void> BatchCache::make(std::span<const PositionRange> ranges) {
  if (!pages_) return {};
  copies_.clear();
  held_.clear();
  for (const PositionRange& range : ranges) {
    held_.push_back(int(pages_->of(range.sequence).size()));
    pages_->take(range, copies_);
  }
  const auto fill = [&]() -> Result<void> {
    for (const PageCopy& copy : copies_)
      LATHE_TRY(copy_rows(std::int64_t{copy.from} * kPagePositions,
                          std::int64_t{copy.to} * kPagePositions, kPagePositions));
    return send_changes();
  };
  Result<void> filled = fill();
  if (filled) return filled;
  while (!copies_.empty()) {
    pages_->take_back(copies_.back());
    copies_.pop_back();
  }
  for (std::size_t i = 0; i < ranges.size(); ++i) pages_->cut(ranges[i].sequence, held_[i]);
  return filled;
}

void BatchCache::cut(int sequence, int length) {
  if (pages_) pages_->cut(sequence, pages_of(length));
}

// Of the page that has the first position, `to` keeps those before it.
bool BatchCache::takes_part_of_page(int from, int to, int first, int length) const {
  if (first % kPagePositions == 0 || first == length) return false;
  const auto page = std::size_t(first / kPagePositions);
  return pages_->of(from)[page] != pages_->of(to)[page];
}

Result<void> BatchCache::check_copy(int from, int to, int first, int length) {
  if (!pages_ || !takes_part_of_page(from, to, first, length)) return {};
  const PositionRange range{to, first, first + 1};
  return check_free({&range, 1}, pages_->needed({&range, 1}),
                    pages_->free() + pages_->freed(to, pages_of(first)));
}

Result<void> BatchCache::copy(int from, int to, int first, int length) {
  if (first == length) return {};
  if (!pages_)
    return copy_rows(std::int64_t{first_row(from)} + first, std::int64_t{first_row(to)} + first,
                     length - first);
  const int page = first / kPagePositions;
  if (takes_part_of_page(from, to, first, length)) {
    const PositionRange range{to, first, std::min(length, (page + 1) * kPagePositions)};
    LATHE_TRY(make({&range, 1}));
    const auto row = [&](int sequence) { return row_in_pages(pages_->of(sequence).data(), first); };
    LATHE_TRY(copy_rows(row(from), row(to), range.end - first));
  }
  pages_->share(from, to, pages_of(first), pages_of(length));
  return {};
}

Result<void> BatchCache::copy_rows(std::int64_t from, std::int64_t to, std::int64_t rows) const {
  const std::int64_t row = plan_.kv_bytes_per_position();
  for (const auto* caches : {&addresses_.kv_k, &addresses_.kv_v})
    for (const std::uint64_t cache : *caches)
      LATHE_DRIVER_CALL(driver_, cuMemcpyDtoDAsync, cache + CUdeviceptr(to * row),
                        cache + CUdeviceptr(from * row), std::size_t(rows * row), stream_);
  return {};
}

// From pageable memory: the driver takes the bytes before it returns.
Result<void> BatchCache::send_changes() {
  for (const KvPages::Changes& change : pages_->changes()) {
    const std::span<const std::int32_t> all = pages_->of(change.sequence);
    // Entries past those that the sequence has by now are nobody's.
    const int end = std::min(change.end, int(all.size()));
    if (change.first >= end) continue;
    const CUdeviceptr to =
        addresses_.pages +
        CUdeviceptr((pages_->first_entry(change.sequence) + std::size_t(change.first)) * 4);
    LATHE_DRIVER_CALL(driver_, cuMemcpyHtoDAsync, to, all.data() + change.first,
                      std::size_t(end - change.first) * 4, stream_);
  }
  pages_->forget_changes();
  return {};
}

}  // namespace lathe
