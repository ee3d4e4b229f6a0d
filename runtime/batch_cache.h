// Owns where the sequences of a batch have their positions in the KV caches on the device: a whole
// context each, or pages that they get as they grow.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "lathe/plan/plan.h"
#include "runtime/binding.h"
#include "runtime/driver.h"
#include "runtime/kv_access.h"
#include "runtime/kv_pages.h"

namespace lathe {

// Lengths are the caller's. Where a call says so it wants the context current, and puts its work on
// the stream.
class BatchCache {
 public:
  BatchCache(const Plan& plan, const Addresses& addresses, const Driver& driver, CUstream stream);

  bool is_paged() const { return pages_.has_value(); }
  int pages() const { return pages_ ? pages_->all() : 0; }
  int pages_used() const { return pages_ ? pages_->used() : 0; }
  // What kernels are told of a sequence: the row of its position 0, or its first entry of the
  // table.
  int first_row(int sequence) const;
  KvPlaces places(int sequence) const;

  // Refuses what there are too few free pages for.
  Result<void> check(std::span<const PositionRange> ranges);
  // The same for all positions of a sequence in place of those that it has.
  Result<void> check_again(const PositionRange& whole);
  // Makes these positions ready to be written, for kernels too; they have been checked. After an
  // error nothing has changed. Wants the context.
  Result<void> make(std::span<const PositionRange> ranges);
  // What is from this length on is no longer needed.
  void cut(int sequence, int length);
  // Whether copy() can be done.
  Result<void> check_copy(int from, int to, int first, int length);
  // Gives `to`, which has been cut to `first`, the positions of `from` up to `length`. Wants the
  // context.
  Result<void> copy(int from, int to, int first, int length);

 private:
  Result<void> check_free(std::span<const PositionRange> ranges, int needed, int free) const;
  bool takes_part_of_page(int from, int to, int first, int length) const;
  // Neighbouring rows, in all layers.
  Result<void> copy_rows(std::int64_t from, std::int64_t to, std::int64_t rows) const;
  Result<void> send_changes();

  const Plan& plan_;
  const Addresses& addresses_;
  const Driver& driver_;
  const CUstream stream_;
  std::optional<KvPages> pages_;
  std::vector<PageCopy> copies_;  // of make(), and the pages that its sequences had
  std::vector<int> held_;
};

}  // namespace lathe
