// Owns the tests of the accounting of pages: against sequences that are written down position by
// position, and pages whose contents are what was written to them.
#include "runtime/kv_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "verification/random.h"

namespace lathe::testing {
namespace {

using verification::fresh_seed;
using verification::Random;

constexpr int kSequences = 4, kMost = 5, kContext = kMost * kPagePositions;

// Pages, what is in them, and what each sequence should find there.
class Books {
 public:
  Books(int pages, std::uint64_t seed)
      : pages_(kSequences, kMost, pages), contents_(std::size_t(pages)), random_(seed) {}

  void run(int events) {
    for (int i = 0; i < events && !::testing::Test::HasFailure(); ++i) {
      const int kind = random_.below(5), sequence = random_.below(kSequences);
      if (kind <= 1) append();
      if (kind == 2) cut(sequence, random_.below(length(sequence) + 1));
      if (kind == 3) share(sequence);
      if (kind == 4) write_again(sequence);
      check();
    }
    for (int sequence = 0; sequence < kSequences; ++sequence) cut(sequence, 0);
    EXPECT_EQ(pages_.used(), 0);
    EXPECT_EQ(pages_.free(), pages_.all());
  }
  int refused() const { return refused_; }
  int copies() const { return copies_; }

 private:
  int length(int sequence) { return int(tokens_[std::size_t(sequence)].size()); }

  // One step of several sequences.
  void append() {
    std::vector<PositionRange> ranges;
    for (int sequence = 0; sequence < kSequences; ++sequence) {
      const int more = std::min(random_.below(20), kContext - length(sequence));
      if (random_.below(2) == 0)
        ranges.push_back({sequence, length(sequence), length(sequence) + more});
    }
    if (!write(ranges)) return;
    for (const PositionRange& range : ranges)
      tokens_[std::size_t(range.sequence)].resize(range.end);
    fill(ranges);
  }
  void write_again(int sequence) {
    const int first = random_.below(length(sequence) + 1);
    const PositionRange range{sequence, first, first + random_.below(length(sequence) - first + 1)};
    if (write({range})) fill({range});
  }
  // Whether there were pages. needed() says exactly how many are taken.
  bool write(const std::vector<PositionRange>& ranges) {
    const int needed = pages_.needed(ranges), free = pages_.free();
    if (needed > free) {
      ++refused_;
      return false;
    }
    std::vector<PageCopy> copies;
    for (const PositionRange& range : ranges) pages_.take(range, copies);
    EXPECT_EQ(free - pages_.free(), needed);
    copies_ += int(copies.size());
    for (const PageCopy& copy : copies)
      contents_[std::size_t(copy.to)] = contents_[std::size_t(copy.from)];
    return true;
  }
  void fill(const std::vector<PositionRange>& ranges) {
    for (const PositionRange& range : ranges)
      for (int p = range.first; p < range.end; ++p)
        at(range.sequence, p) = tokens_[std::size_t(range.sequence)][std::size_t(p)] = ++last_;
  }
  int& at(int sequence, int position) {
    const std::int32_t page = pages_.of(sequence)[std::size_t(position / kPagePositions)];
    return contents_[std::size_t(page)][std::size_t(position % kPagePositions)];
  }
  void cut(int sequence, int length) {
    const int before = pages_.free(), freed = pages_.freed(sequence, pages_of(length));
    pages_.cut(sequence, pages_of(length));
    EXPECT_EQ(pages_.free() - before, freed);
    tokens_[std::size_t(sequence)].resize(std::size_t(length));
  }
  void share(int from) {
    const int to = (from + 1 + random_.below(kSequences - 1)) % kSequences;
    const int count = random_.below(length(from) + 1);
    cut(to, 0);
    pages_.share(from, to, 0, pages_of(count));
    const auto& source = tokens_[std::size_t(from)];
    tokens_[std::size_t(to)].assign(source.begin(), source.begin() + count);
  }

  void check() {
    std::set<std::int32_t> used;
    for (int sequence = 0; sequence < kSequences; ++sequence) {
      const auto pages = pages_.of(sequence);
      used.insert(pages.begin(), pages.end());
      ASSERT_EQ(std::ssize(pages), pages_of(length(sequence)));
      for (int p = 0; p < length(sequence); ++p)
        ASSERT_EQ(at(sequence, p), tokens_[std::size_t(sequence)][std::size_t(p)])
            << "position " << p << " of sequence " << sequence;
    }
    EXPECT_EQ(pages_.used(), std::ssize(used));
    EXPECT_EQ(pages_.used() + pages_.free(), pages_.all());
    // A copy of the table that takes the changes has what the sequences have.
    for (const KvPages::Changes& change : pages_.changes())
      for (int i = change.first; i < std::min(change.end, int(pages_.of(change.sequence).size()));
           ++i)
        device_[std::size_t(change.sequence * kMost + i)] =
            pages_.of(change.sequence)[std::size_t(i)];
    pages_.forget_changes();
    for (int sequence = 0; sequence < kSequences; ++sequence)
      EXPECT_TRUE(
          std::ranges::equal(pages_.of(sequence), std::span(device_)
                                                      .subspan(std::size_t(sequence * kMost))
                                                      .first(pages_.of(sequence).size())));
  }

  KvPages pages_;
  std::vector<std::array<int, kPagePositions>> contents_;
  std::array<std::vector<int>, kSequences> tokens_;
  std::array<std::int32_t, kSequences* kMost> device_ = {};
  Random random_;
  int last_ = 0, refused_ = 0, copies_ = 0;
};

TEST(KvPages, EachSequenceFindsWhatItWrote) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  int refused = 0, copies = 0;
  for (int schedule = 0; schedule < 1000 && !HasFailure(); ++schedule) {
    Books books(3 + schedule % 15, seed + std::uint64_t(schedule));
    books.run(40);
    refused += books.refused();
    copies += books.copies();
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(copies, 0);
}

TEST(KvPages, TheLastOfThoseThatShareAPageKeepsIt) {
  KvPages pages(3, 4, 5);
  std::vector<PageCopy> copies;
  pages.take({0, 0, 20}, copies);
  for (const int other : {1, 2}) pages.share(0, other, 0, 2);
  EXPECT_EQ(pages.used(), 2);
  const PositionRange all[] = {{0, 20, 21}, {1, 20, 33}, {2, 20, 22}};
  EXPECT_EQ(pages.needed(all), 3);  // two copies, and the third page of sequence 1
  EXPECT_EQ(pages.needed({all, 1}), 1);
  const std::int32_t shared = pages.of(0)[1];
  for (const PositionRange& range : all) pages.take(range, copies);
  EXPECT_EQ(pages.free(), 0);
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(pages.of(2)[1], shared);
  EXPECT_EQ(pages.of(0)[0], pages.of(2)[0]);
  EXPECT_NE(pages.of(0)[1], pages.of(1)[1]);

  pages.cut(1, 2);
  pages.take_back(copies[1]);
  EXPECT_EQ(pages.of(1)[1], shared);
  EXPECT_TRUE(pages.is_shared(shared));
  for (const int sequence : {0, 1, 2}) pages.cut(sequence, 0);
  EXPECT_EQ(pages.free(), 5);
}

}  // namespace
}  // namespace lathe::testing
