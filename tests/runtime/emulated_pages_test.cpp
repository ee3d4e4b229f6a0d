// Owns the proof without a GPU that a batch computes in pages what it computes in a row: both do
// the same at random, on the fake driver, whose kernels here are the device code itself, emulated.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lathe/runtime/batch.h"
#include "runtime/session_base.h"
#include "tests/runtime/batch_schedule.h"
#include "tests/runtime/emulated_batches.h"

namespace lathe::testing {

using verification::Random;

namespace {

// The keys and values of all positions of a sequence, layer by layer.
std::vector<float> all_kv(Batch& batch, int sequence) {
  const ModelSpec& spec = batch.plan().spec;
  const int length = batch.length(sequence).value();
  const auto each = std::size_t(length * spec.kv_heads * spec.head_dim);
  std::vector<float> values(2 * std::size_t(spec.layers) * each);
  auto next = std::span(values);
  for (int layer = 0; layer < spec.layers; ++layer)
    for (const KvPart part : {KvPart::keys, KvPart::values}) {
      EXPECT_TRUE(batch.read_kv(sequence, {part, layer, 0, length}, next.first(each)));
      next = next.subspan(each);
    }
  return values;
}

void add_logits(Batch& batch, int rows, std::vector<float>& all) {
  for (int row = 0; row < rows; ++row) {
    const auto values = batch.logits(row).value();
    all.insert(all.end(), values.begin(), values.end());
  }
}

// Two batches that are told the same.
class Twins {
 public:
  Twins(Batch& row, Batch& paged, Random& random) : row_(row), paged_(paged), random_(random) {}

  void run(int events) {
    for (int i = 0; i < events && !::testing::Test::HasFailure(); ++i) {
      const int kind = lengths_.empty() ? 0 : random_.below(13);
      const int sequence = lengths_.empty() ? 0 : any();
      if (kind == 0) join();
      if (kind == 1) feed(sequence);
      if (kind == 2) rollback(sequence);
      if (kind == 3) fork(sequence);
      if (kind == 4) copy(sequence);
      if (kind == 5 && lengths_.size() > 1) leave(sequence);
      if (kind == 6) snapshot(sequence);
      if (kind == 7) restore(sequence);
      if (kind == 8) write(sequence);
      if (kind >= 9) step();
    }
    for (const auto& [sequence, length] : lengths_) {
      EXPECT_EQ(all_kv(row_, sequence), all_kv(paged_, sequence));
      EXPECT_TRUE(row_.leave(sequence) && paged_.leave(sequence));
    }
    EXPECT_EQ(paged_.report().kv_pages_used, 0);
  }

 private:
  int any() {
    auto at = lengths_.begin();
    std::advance(at, random_.below(int(lengths_.size())));
    return at->first;
  }
  std::int32_t token() { return random_.below(row_.plan().spec.vocab); }
  int room(int sequence) { return row_.plan().options.context - lengths_[sequence]; }

  template <typename Call>
  auto both(const Call& call) {
    auto of_row = call(row_);
    const auto of_paged = call(paged_);
    EXPECT_EQ(bool(of_row), bool(of_paged)) << (of_paged ? of_row : of_paged).error().text();
    return of_row;
  }

  void join() {
    Sampling sampling;
    if (random_.below(2) == 0)
      sampling = {.temperature = 1, .seed = std::uint64_t(random_.below(9))};
    const auto joined = both([&](Batch& batch) { return batch.join(sampling); });
    if (joined) lengths_[*joined] = 0;
  }
  void feed(int sequence) {
    std::vector<std::int32_t> tokens(std::size_t(1 + random_.below(40)));
    if (std::ssize(tokens) > room(sequence)) return;
    for (std::int32_t& each : tokens) each = token();
    ASSERT_TRUE(both([&](Batch& batch) { return batch.feed(sequence, tokens); }));
    lengths_[sequence] += int(tokens.size());
  }
  void rollback(int sequence) {
    const int length = random_.below(lengths_[sequence] + 1);
    ASSERT_TRUE(both([&](Batch& batch) { return batch.rollback(sequence, length); }));
    lengths_[sequence] = length;
  }
  void fork(int sequence) {
    const auto forked = both([&](Batch& batch) { return batch.fork(sequence); });
    if (forked) lengths_[*forked] = lengths_[sequence];
  }
  void copy(int from) {
    const int to = any();
    if (from == to) return;
    const int first = random_.below(std::min(lengths_[from], lengths_[to]) + 1);
    const int length = first + random_.below(lengths_[from] - first + 1);
    ASSERT_TRUE(both([&](Batch& batch) { return batch.copy(from, to, length, first); }));
    lengths_[to] = length;
  }
  void leave(int sequence) {
    ASSERT_TRUE(both([&](Batch& batch) { return batch.leave(sequence); }));
    lengths_.erase(sequence);
  }
  void snapshot(int sequence) {
    const int length = random_.below(lengths_[sequence] + 1);
    auto of_row = row_.snapshot(sequence, length), of_paged = paged_.snapshot(sequence, length);
    ASSERT_TRUE(of_row && of_paged);
    of_row_.emplace(std::move(*of_row));
    of_paged_.emplace(std::move(*of_paged));
  }
  void restore(int sequence) {
    if (!of_row_) return;
    ASSERT_TRUE(row_.restore(sequence, *of_row_) && paged_.restore(sequence, *of_paged_));
    lengths_[sequence] = of_row_->length();
  }
  void write(int sequence) {
    const ModelSpec& spec = row_.plan().spec;
    const int first = random_.below(lengths_[sequence] + 1);
    const KvRange range{random_.below(2) == 0 ? KvPart::keys : KvPart::values,
                        random_.below(spec.layers), first,
                        random_.below(lengths_[sequence] - first + 1)};
    std::vector<float> values(std::size_t(range.positions * spec.kv_heads * spec.head_dim));
    for (float& value : values) value = float(random_.below(9)) / 4 - 1;
    ASSERT_TRUE(both([&](Batch& batch) { return batch.write_kv(sequence, range, values); }));
  }
  void step() {
    std::vector<BatchRow> rows;
    for (const auto& [sequence, length] : lengths_) {
      const int count = std::min(random_.below(4), room(sequence));
      for (int i = 0; i < count; ++i) rows.push_back({sequence, token()});
    }
    if (rows.empty()) return;
    const auto of_row = row_.step(rows), of_paged = paged_.step(rows);
    ASSERT_TRUE(of_row && of_paged) << (of_row ? of_paged : of_row).error().text();
    EXPECT_TRUE(std::ranges::equal(*of_row, *of_paged));
    const int last = int(rows.size()) - 1;
    EXPECT_TRUE(std::ranges::equal(row_.logits(last).value(), paged_.logits(last).value()));
    for (const BatchRow& row : rows) ++lengths_[row.sequence];
  }

  Batch &row_, &paged_;
  Random& random_;
  std::map<int, int> lengths_;
  std::optional<KvSnapshot> of_row_, of_paged_;
};

class EmulatedPages : public EmulatedBatches<::testing::Test> {
 protected:
  std::unique_ptr<Batch> open(Format kv, int pages) {
    BatchOptions options = emulated_batch_options(kv);
    options.kv_pages = pages;
    return open_batch_of(1, options);
  }
};

TEST_F(EmulatedPages, TokensAreThoseOfARow) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  Random random(seed_);
  for (const Format kv : {Format::f32, Format::f16, Format::q8_0}) {
    const auto row = open(kv, 0), paged = open(kv, 12);
    ASSERT_TRUE(row && paged);
    for (int schedule = 0; schedule < 2; ++schedule) Twins(*row, *paged, random).run(25);
  }
}

// In the middle of a page, which each of them goes on with in another way.
TEST_F(EmulatedPages, WhatOneWritesToASharedPageTheOthersDoNotSee) {
  std::vector<std::vector<float>> logits;
  for (const int pages : {0, 8}) {
    const auto batch = open(Format::f16, pages);
    ASSERT_TRUE(batch);
    const int a = batch->join().value();
    ASSERT_TRUE(batch->feed(a, std::vector<std::int32_t>{3, 7, 1, 30, 12, 9, 4}));
    const int b = batch->fork(a).value(), c = batch->fork(b).value();
    std::vector<float> all;
    for (const std::int32_t token : {5, 6, 7}) {
      const BatchRow rows[] = {{a, token}, {b, token + 20}, {c, token + 40}, {c, token + 50}};
      ASSERT_TRUE(batch->step(rows));
      add_logits(*batch, 4, all);
    }
    logits.push_back(std::move(all));
    if (pages > 0) {
      EXPECT_EQ(batch->report().kv_pages_used, 3);
    }
  }
  EXPECT_EQ(logits[0] == logits[1], true);
}

TEST_F(EmulatedPages, WhatIsWrittenOrCopiedWithinAPageIsItsSequencesAlone) {
  std::vector<std::vector<float>> seen;
  for (const int pages : {0, 8}) {
    const auto batch = open(Format::f16, pages);
    ASSERT_TRUE(batch);
    const ModelSpec& spec = batch->plan().spec;
    const int a = batch->join().value(), b = batch->join().value();
    ASSERT_TRUE(batch->feed(a, std::vector<std::int32_t>(40, 3)));
    ASSERT_TRUE(batch->feed(b, std::vector<std::int32_t>(25, 4)));
    const int c = batch->fork(b).value();
    std::vector<float> all;
    const auto look = [&] {
      for (const int sequence : {a, b, c}) {
        const std::vector<float> kv = all_kv(*batch, sequence);
        all.insert(all.end(), kv.begin(), kv.end());
      }
    };
    // In a page that both have; across two of them.
    const std::vector<float> values(std::size_t(6 * spec.kv_heads * spec.head_dim), 0.5f);
    ASSERT_TRUE(batch->write_kv(c, {KvPart::values, 0, 2, 6}, values));
    look();
    ASSERT_TRUE(batch->write_kv(b, {KvPart::keys, spec.layers - 1, 13, 6}, values));
    look();
    // To the end of a copy in the page that it begins in, in the next one, and of one position.
    for (const auto& [length, first] : {std::pair(24, 18), {37, 21}, {22, 21}}) {
      ASSERT_TRUE(batch->copy(a, c, length, first));
      look();
    }
    const BatchRow rows[] = {{a, 5}, {b, 25}, {c, 45}};
    ASSERT_TRUE(batch->step(rows));
    add_logits(*batch, 3, all);
    look();
    seen.push_back(std::move(all));
  }
  EXPECT_EQ(seen[0] == seen[1], true);
}

// Pages and table are those of before a step that failed, whether the values of a shared page, the
// table, the head or the launch did not come.
TEST_F(EmulatedPages, AFailedStepLeavesPagesAndTheirTable) {
  std::vector<std::vector<float>> logits;
  for (const int pages : {0, 8}) {
    const auto batch = open(Format::f16, pages);
    ASSERT_TRUE(batch);
    // Has the pages with the numbers that a table begins with.
    const int before = batch->join().value(), a = batch->join().value();
    ASSERT_TRUE(batch->feed(before, std::vector<std::int32_t>{1}));
    ASSERT_TRUE(batch->feed(a, std::vector<std::int32_t>(18, 3)));
    ASSERT_TRUE(batch->leave(before));
    const int b = batch->fork(a).value(), c = batch->fork(a).value();
    const BatchRow failing[] = {{b, 9}, {c, 10}, {a, 11}};
    for (const auto& [call, index] : {std::pair("cuMemcpyHtoDAsync", 0),
                                      {"cuMemcpyDtoDAsync", 0},
                                      {"cuMemcpyDtoDAsync", 3},
                                      {"cuMemcpyHtoDAsync", 1},
                                      {"cuMemcpyHtoDAsync", 2},
                                      {"cuGraphLaunch", 0}}) {
      if (pages == 0) continue;
      fake_.fail_call(call, index, CUDA_ERROR_UNKNOWN);
      EXPECT_FALSE(batch->step(failing)) << call << " " << index;
    }
    const BatchRow rows[] = {{a, 5}, {b, 25}, {c, 45}};
    ASSERT_TRUE(batch->step(rows));
    logits.emplace_back();
    add_logits(*batch, 3, logits.back());
  }
  EXPECT_EQ(logits[0] == logits[1], true);
}

TEST_F(EmulatedPages, ASequenceGetsWhatItGetsAlone) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  Random random(seed_);
  const auto batch = open(Format::f16, 12);
  ASSERT_TRUE(batch);
  run_schedule(*batch, random, 16);
}

}  // namespace
}  // namespace lathe::testing
