// Owns which pages of a batch's KV cache have which positions of its sequences. Pages are handed
// out as sequences grow; sequences with a prefix in common share its pages, and one that writes to
// such a page gets a copy of its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lathe/codegen/kernel_key.h"

namespace lathe {

// Positions from `first` to before `end` of a sequence, which are about to be written. The sequence
// has those before `first`.
struct PositionRange {
  int sequence = 0;
  int first = 0;
  int end = 0;
};

// The `index`-th page of a sequence is now `to`, which is to get what `from` has.
struct PageCopy {
  int sequence = 0;
  int index = 0;
  std::int32_t from = 0;
  std::int32_t to = 0;
};

class KvPages {
 public:
  // Each sequence has up to `most` of all `pages`.
  KvPages(int sequences, int most, int pages);

  int all() const { return int(users_.size()); }
  int free() const { return int(free_.size()); }
  int used() const { return all() - free(); }
  // The pages of a sequence, in the order of its positions. Valid as long as this, and never
  // elsewhere.
  std::span<const std::int32_t> of(int sequence) const {
    return std::span(table_).subspan(first_entry(sequence),
                                     std::size_t(held_[std::size_t(sequence)]));
  }
  // In the table of all sequences.
  std::size_t first_entry(int sequence) const { return std::size_t(sequence) * most_; }
  bool is_shared(std::int32_t page) const { return users_[std::size_t(page)] > 1; }

  // How many free pages take() would take for all of these, of which each is another sequence's.
  int needed(std::span<const PositionRange> ranges);
  // Gives the range's positions pages that are its sequence's alone; there are enough. What must be
  // copied for that comes behind `copies`.
  void take(const PositionRange& range, std::vector<PageCopy>& copies);
  // The sequence has the shared page again.
  void take_back(const PageCopy& copy);
  // Gives back all of a sequence's pages but the first `pages`.
  void cut(int sequence, int pages);
  // How many pages that would make free.
  int freed(int sequence, int pages) const;
  // Gives `to`, which has the first `first` pages, those of `from` from there on, up to `end`.
  void share(int from, int to, int first, int end);

  // Entries of the table that have changed since forget_changes(), for each sequence that has such.
  struct Changes {
    int sequence = 0;
    int first = 0, end = 0;
  };
  std::span<const Changes> changes() const { return changes_; }
  void forget_changes();

 private:
  std::int32_t& entry(int sequence, int index) {
    return table_[first_entry(sequence) + std::size_t(index)];
  }
  std::int32_t pop();
  void drop(std::int32_t page);
  void set(int sequence, int index, std::int32_t page);

  const std::size_t most_;
  std::vector<std::int32_t> table_;  // sequences x most
  std::vector<int> held_;            // pages of each sequence
  std::vector<int> users_;           // sequences that have each page
  std::vector<int> writers_;         // of each page, while needed() counts
  std::vector<std::int32_t> free_;
  std::vector<Changes> changes_;
  std::vector<int> change_of_;  // which of them is the sequence's; -1: none
};

}  // namespace lathe
