// Owns the handing out, sharing and giving back of pages.
#include "runtime/kv_pages.h"

#include <algorithm>

namespace lathe {

KvPages::KvPages(int sequences, int most, int pages)
    : most_(std::size_t(most)),
      table_(std::size_t(sequences) * most_),
      held_(std::size_t(sequences)),
      users_(std::size_t(pages)),
      writers_(users_.size()),
      change_of_(held_.size(), -1) {
  changes_.reserve(held_.size());  // so that steps allocate nothing
  for (int page = pages; page-- > 0;) free_.push_back(page);
}

int KvPages::needed(std::span<const PositionRange> ranges) {
  int count = 0;
  const auto each_held = [&](const PositionRange& range, const auto& visit) {
    if (range.first == range.end) return;
    const std::span<const std::int32_t> held = of(range.sequence);
    const int end = std::min(int(held.size()), pages_of(range.end));
    for (int i = range.first / kPagePositions; i < end; ++i)
      visit(std::size_t(held[std::size_t(i)]));
  };
  for (const PositionRange& range : ranges) {
    count += std::max(0, pages_of(range.end) - held_[std::size_t(range.sequence)]);
    // The last of a page's users can have it, once the others have copies.
    each_held(range, [&](std::size_t page) { count += ++writers_[page] < users_[page]; });
  }
  for (const PositionRange& range : ranges)
    each_held(range, [&](std::size_t page) { writers_[page] = 0; });
  return count;
}

void KvPages::take(const PositionRange& range, std::vector<PageCopy>& copies) {
  if (range.first == range.end) return;
  int& held = held_[std::size_t(range.sequence)];
  const int end = pages_of(range.end);
  for (int i = range.first / kPagePositions; i < std::min(held, end); ++i) {
    const std::int32_t page = entry(range.sequence, i);
    if (!is_shared(page)) continue;
    drop(page);
    set(range.sequence, i, pop());
    copies.push_back({range.sequence, i, page, entry(range.sequence, i)});
  }
  for (; held < end; ++held) set(range.sequence, held, pop());
}

void KvPages::take_back(const PageCopy& copy) {
  drop(copy.to);
  ++users_[std::size_t(copy.from)];
  set(copy.sequence, copy.index, copy.from);
}

void KvPages::cut(int sequence, int pages) {
  int& held = held_[std::size_t(sequence)];
  while (held > pages) drop(entry(sequence, --held));
}

int KvPages::freed(int sequence, int pages) const {
  const std::span<const std::int32_t> held = of(sequence);
  int count = 0;
  for (std::size_t i = std::size_t(pages); i < held.size(); ++i) count += !is_shared(held[i]);
  return count;
}

void KvPages::share(int from, int to, int first, int end) {
  for (int i = first; i < end; ++i) {
    const std::int32_t page = entry(from, i);
    ++users_[std::size_t(page)];
    set(to, i, page);
  }
  held_[std::size_t(to)] = std::max(first, end);
}

void KvPages::forget_changes() {
  for (const Changes& change : changes_) change_of_[std::size_t(change.sequence)] = -1;
  changes_.clear();
}

std::int32_t KvPages::pop() {
  const std::int32_t page = free_.back();
  free_.pop_back();
  users_[std::size_t(page)] = 1;
  return page;
}

void KvPages::drop(std::int32_t page) {
  if (--users_[std::size_t(page)] == 0) free_.push_back(page);
}

void KvPages::set(int sequence, int index, std::int32_t page) {
  entry(sequence, index) = page;
  int& which = change_of_[std::size_t(sequence)];
  if (which < 0) {
    which = int(changes_.size());
    changes_.push_back({sequence, index, index + 1});
    return;
  }
  Changes& change = changes_[std::size_t(which)];
  change.first = std::min(change.first, index);
  change.end = std::max(change.end, index + 1);
}

}  // namespace lathe
