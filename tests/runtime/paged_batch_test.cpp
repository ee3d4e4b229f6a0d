// Owns the tests of a batch whose KV cache lies in pages, on the fake driver, whose kernels here do
// nothing: that no page is lost, what is refused, and what a failing driver leaves.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lathe/runtime/batch.h"
#include "runtime/session_base.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/tiny_model.h"
#include "verification/random.h"

namespace lathe::testing {
namespace {

using verification::fresh_seed;
using verification::Random;

BatchOptions paged_options(int pages) {
  BatchOptions options;
  options.session.executor = ExecutorKind::graph;
  options.session.disk_cache = false;
  options.session.plan.context = 100;
  options.session.plan.chunk = 64;
  options.session.plan.kv = Format::f16;
  options.sequences = 5;
  options.rows = 12;
  options.kv_pages = pages;
  return options;
}

class PagedBatch : public ::testing::Test {
 protected:
  void open(int pages) {
    auto batch = open_batch(make_model(1), paged_options(pages), fake_.platform());
    ASSERT_TRUE(batch) << batch.error().text();
    batch_ = std::move(*batch);
  }
  void TearDown() override {
    batch_ = nullptr;
    for (const std::string& violation : fake_.violations()) ADD_FAILURE() << violation;
  }
  int used() { return batch_->report().kv_pages_used; }
  Result<void> feed(int sequence, int tokens) {
    return batch_->feed(sequence, std::vector<std::int32_t>(std::size_t(tokens), 1));
  }
  Result<void> step(std::vector<int> sequences) {
    std::vector<BatchRow> rows;
    for (const int sequence : sequences) rows.push_back({sequence, 1});
    const auto chosen = batch_->step(rows);
    if (!chosen) return chosen.error();
    return {};
  }

  static constexpr int values_ = 128;  // of a position
  FakeDriver fake_{{.execute = false}};
  std::unique_ptr<Batch> batch_;
};

// What joins, grows, forks, goes back and leaves, with more asked for than there is and, in half of
// the schedules, a driver that fails at any time.
class Schedule {
 public:
  Schedule(Batch& batch, FakeDriver& fake, bool failures, std::uint64_t seed)
      : batch_(batch), fake_(fake), failures_(failures), random_(seed) {}

  void run(int events) {
    for (int i = 0; i < events && !::testing::Test::HasFailure(); ++i) {
      if (failures_ && random_.below(4) == 0)
        fake_.fail_call(1 + random_.below(12), CUDA_ERROR_UNKNOWN);
      event(random_.below(9));
      check();
    }
    fake_.fail_call(1 << 30, CUDA_ERROR_UNKNOWN);  // none any more
    for (const auto& [sequence, length] : lengths_) EXPECT_TRUE(batch_.leave(sequence));
    EXPECT_EQ(batch_.report().kv_pages_used, 0);
  }
  int refused() const { return refused_; }
  int steps() const { return steps_; }
  int failed() const { return failed_; }

 private:
  int any() {
    auto at = lengths_.begin();
    std::advance(at, random_.below(int(lengths_.size())));
    return at->first;
  }
  template <typename T>
  bool done(const Result<T>& result) {
    if (result) return true;
    const Error& error = result.error();
    refused_ += error.code == Code::out_of_memory;
    failed_ += error.code == Code::driver;
    const bool known = error.code == Code::out_of_memory || error.code == Code::out_of_range ||
                       (failures_ && error.code == Code::driver);
    EXPECT_TRUE(known) << error.text();
    return false;
  }

  void event(int kind) {
    if (kind == 0 || lengths_.empty()) {
      if (const auto joined = batch_.join(); done(joined)) lengths_[*joined] = 0;
      return;
    }
    const int sequence = any(), other = any();
    int& length = lengths_[sequence];
    if (kind == 1) {
      const int more = 1 + random_.below(60);
      const std::vector<std::int32_t> tokens(std::size_t(more), 1);
      if (done(batch_.feed(sequence, tokens)))
        length += more;
      else
        length = batch_.length(sequence).value();  // pieces before a failure stay
    }
    if (kind == 2) {
      length = random_.below(length + 1);
      EXPECT_TRUE(batch_.rollback(sequence, length));
    }
    if (kind == 3) {
      if (const auto forked = batch_.fork(sequence); done(forked)) lengths_[*forked] = length;
    }
    if (kind == 4 && sequence != other) {
      const int first = random_.below(std::min(length, lengths_[other]) + 1);
      const int count = first + random_.below(length - first + 1);
      const int before = lengths_[other];
      done(batch_.copy(sequence, other, count, first));
      lengths_[other] = batch_.length(other).value();
      EXPECT_TRUE(lengths_[other] == count || lengths_[other] == before ||
                  lengths_[other] == first);
    }
    if (kind == 5) {
      EXPECT_TRUE(batch_.leave(sequence));
      lengths_.erase(sequence);
    }
    if (kind == 6) {
      if (snapshot_ && random_.below(3) > 0) {
        done(batch_.restore(sequence, *snapshot_));
        length = batch_.length(sequence).value();
      } else if (auto taken = batch_.snapshot(sequence, random_.below(length + 1)); done(taken)) {
        snapshot_.emplace(std::move(*taken));
      }
    }
    if (kind >= 7) {
      std::vector<BatchRow> rows;
      for (const auto& [each, unused] : lengths_)
        for (int i = random_.below(3); i > 0; --i) rows.push_back({each, 1});
      if (!rows.empty() && done(batch_.step(rows)))
        for (const BatchRow& row : rows) {
          ++lengths_[row.sequence];
          ++steps_;
        }
    }
  }

  // What sequences have at most, each for itself, and at least, the longest.
  void check() {
    int most = 0, least = 0;
    for (const auto& [sequence, length] : lengths_) {
      EXPECT_EQ(batch_.length(sequence).value(), length);
      const int pages = (length + kPagePositions - 1) / kPagePositions;
      most += pages;
      least = std::max(least, pages);
    }
    const int used = batch_.report().kv_pages_used;
    EXPECT_LE(used, most);
    EXPECT_GE(used, least);
  }

  Batch& batch_;
  FakeDriver& fake_;
  const bool failures_;
  Random random_;
  std::map<int, int> lengths_;
  std::optional<KvSnapshot> snapshot_;
  int refused_ = 0, failed_ = 0, steps_ = 0;
};

TEST_F(PagedBatch, LosesNoPageOverAThousandSchedules) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  open(6);
  EXPECT_EQ(batch_->report().kv_pages, 6);
  int refused = 0, failed = 0, steps = 0;
  for (int i = 0; i < 1000 && !HasFailure(); ++i) {
    Schedule schedule(*batch_, fake_, i % 2 == 1, seed + std::uint64_t(i));
    schedule.run(30);
    refused += schedule.refused();
    failed += schedule.failed();
    steps += schedule.steps();
  }
  EXPECT_GT(refused, 300);
  EXPECT_GT(failed, 1000);
  EXPECT_GT(steps, 10000);
}

TEST_F(PagedBatch, GetsPagesAsItGrowsAndGivesThemBack) {
  open(10);
  EXPECT_EQ(batch_->report().kv_bytes, 2 * 10 * 16 * values_ * 2);
  const int a = batch_->join().value(), b = batch_->join().value();
  EXPECT_EQ(used(), 0);
  ASSERT_TRUE(feed(a, 16));
  EXPECT_EQ(used(), 1);
  ASSERT_TRUE(step({a, b}));
  EXPECT_EQ(used(), 3);
  ASSERT_TRUE(batch_->rollback(a, 16));
  EXPECT_EQ(used(), 2);
  ASSERT_TRUE(feed(a, 50));  // a chunk
  EXPECT_EQ(used(), 6);

  // A prefix is there once, up to the page that one of them writes to.
  const int c = batch_->fork(a).value();
  EXPECT_EQ(used(), 6);
  ASSERT_TRUE(step({a, c}));
  EXPECT_EQ(used(), 7);
  ASSERT_TRUE(batch_->copy(a, b, 32));
  EXPECT_EQ(used(), 6);
  ASSERT_TRUE(step({b}));
  EXPECT_EQ(used(), 7);
  ASSERT_TRUE(batch_->leave(a));
  EXPECT_EQ(used(), 6);  // all but its last page are others' too
  ASSERT_TRUE(batch_->leave(b) && batch_->leave(c));
  EXPECT_EQ(used(), 0);
}

TEST_F(PagedBatch, SnapshotsAreThereOnce) {
  open(10);
  const int a = batch_->join().value(), b = batch_->join().value();
  ASSERT_TRUE(feed(a, 40));
  const KvSnapshot snapshot = batch_->snapshot(a, 36).value();
  ASSERT_TRUE(batch_->restore(b, snapshot));
  EXPECT_EQ(batch_->length(b).value(), 36);
  EXPECT_EQ(used(), 3);
  ASSERT_TRUE(step({a, b}));
  EXPECT_EQ(used(), 4);
  // One that it was restored to has it too, when the first one has not.
  ASSERT_TRUE(batch_->rollback(a, 35));
  const int c = batch_->join().value();
  ASSERT_TRUE(batch_->restore(c, snapshot));
  EXPECT_EQ(used(), 4);
  ASSERT_TRUE(batch_->leave(c));
  // Nobody has it any more: it comes from the host.
  ASSERT_TRUE(batch_->leave(b));
  ASSERT_TRUE(batch_->restore(batch_->join().value(), snapshot));
  EXPECT_EQ(used(), 6);
  // A sequence that has it goes back to it.
  ASSERT_TRUE(feed(b, 20) && batch_->restore(b, snapshot));
  EXPECT_EQ(used(), 6);
  EXPECT_EQ(batch_->length(b).value(), 36);
  // What was written is no longer the snapshot.
  ASSERT_TRUE(batch_->write_kv(b, {KvPart::keys, 0, 35, 1}, std::vector<float>(values_)));
  ASSERT_TRUE(batch_->restore(a, snapshot));
  EXPECT_EQ(used(), 6);
  ASSERT_TRUE(batch_->leave(b));
  EXPECT_EQ(used(), 3);
}

TEST_F(PagedBatch, RefusesWhatThereAreNoPagesForBeforeAnyLaunch) {
  open(4);
  const int a = batch_->join().value(), b = batch_->join().value();
  ASSERT_TRUE(feed(a, 40));
  const int launches = fake_.calls("cuGraphLaunch");
  const auto too_many = feed(b, 40);
  ASSERT_FALSE(too_many);
  EXPECT_EQ(too_many.error().code, Code::out_of_memory);
  EXPECT_EQ(too_many.error().message,
            "Sequence 1 needs 3 more pages of the KV cache, and of its 4 pages 1 is free.");
  EXPECT_EQ(batch_->length(b).value(), 0);
  EXPECT_EQ(used(), 3);

  // Of three that share a page two need another, whichever write to it.
  const int c = batch_->fork(a).value(), d = batch_->fork(a).value();
  const auto step_of_three = step({a, c, c, d});
  ASSERT_FALSE(step_of_three);
  EXPECT_EQ(step_of_three.error().message,
            "The step's 3 sequences need 2 more pages of the KV cache, and of its 4 pages 1 is "
            "free.");
  for (const int sequence : {a, c, d}) EXPECT_EQ(batch_->length(sequence).value(), 40);
  EXPECT_EQ(fake_.calls("cuGraphLaunch"), launches);
  ASSERT_TRUE(step({a}));
  EXPECT_EQ(used(), 4);

  // What is given back by the call itself counts.
  ASSERT_TRUE(batch_->leave(d) && batch_->leave(c));
  const KvSnapshot snapshot = batch_->snapshot(a, 41).value();
  ASSERT_TRUE(batch_->rollback(a, 33));  // no longer the snapshot
  EXPECT_EQ(batch_->restore(b, snapshot).error().code, Code::out_of_memory);
  ASSERT_TRUE(batch_->restore(a, snapshot));
  EXPECT_EQ(batch_->length(a).value(), 41);

  // A copy of a part of a page into one that others have.
  ASSERT_TRUE(batch_->copy(a, b, 16));
  ASSERT_TRUE(batch_->rollback(a, 0) && feed(a, 48));
  const int e = batch_->fork(b).value();
  EXPECT_EQ(used(), 4);
  const auto copied = batch_->copy(a, e, 20, 5);
  ASSERT_FALSE(copied);
  EXPECT_EQ(copied.error().code, Code::out_of_memory);
  EXPECT_EQ(batch_->length(e).value(), 16);
  EXPECT_EQ(batch_->write_kv(e, {KvPart::keys, 0, 3, 1}, std::vector<float>(values_)).error().code,
            Code::out_of_memory);
  ASSERT_TRUE(batch_->rollback(a, 32));
  ASSERT_TRUE(batch_->copy(a, e, 20, 5));
  EXPECT_EQ(used(), 4);
  ASSERT_TRUE(batch_->write_kv(e, {KvPart::keys, 0, 3, 1}, std::vector<float>(values_)));
}

TEST_F(PagedBatch, ACopyWithinASharedPageTakesWhatItGivesBack) {
  open(4);
  const int a = batch_->join().value(), b = batch_->join().value();
  ASSERT_TRUE(feed(a, 16) && feed(b, 20));
  const int c = batch_->fork(b).value();
  ASSERT_TRUE(step({c}));
  EXPECT_EQ(used(), 4);  // its first page is b's too, its second one is not
  ASSERT_TRUE(batch_->copy(a, c, 12, 5));
  EXPECT_EQ(batch_->length(c).value(), 12);
  EXPECT_EQ(used(), 4);
}

TEST_F(PagedBatch, AFailedCopyOfASharedPageLeavesItShared) {
  open(10);
  const int a = batch_->join().value();
  ASSERT_TRUE(feed(a, 20));
  const int b = batch_->fork(a).value();
  // The values of a shared page, the table, the head, the launch.
  for (const auto& [call, index] : {std::pair("cuMemcpyDtoDAsync", 1),
                                    {"cuMemcpyHtoDAsync", 0},
                                    {"cuMemcpyHtoDAsync", 1},
                                    {"cuGraphLaunch", 0}}) {
    fake_.fail_call(call, index, CUDA_ERROR_UNKNOWN);
    EXPECT_FALSE(step({b})) << call;
    EXPECT_EQ(batch_->length(b).value(), 20);
    EXPECT_LE(used(), 3) << call;
  }
  ASSERT_TRUE(step({a, b}));
  ASSERT_TRUE(batch_->leave(a) && batch_->leave(b));
  EXPECT_EQ(used(), 0);
}

TEST(PagedOptions, AreRefusedWhereTheyMakeNoSense) {
  FakeDriver fake({.execute = false});
  BatchOptions options = paged_options(-1);
  EXPECT_EQ(open_batch(make_model(1), options, fake.platform()).error().code,
            Code::invalid_argument);
  options.kv_pages = 1 << 28;
  EXPECT_EQ(open_batch(make_model(1), options, fake.platform()).error().code,
            Code::invalid_argument);
  options.kv_pages = 13;     // of 8 KiB each
  options.sequences = 4096;  // of 7 entries of the table each
  const std::string few = open_batch(make_model(1), options, fake.platform()).error().message;
  EXPECT_NE(few.find("114688 bytes, more than these pages of 8192"), std::string::npos) << few;
  EXPECT_EQ(fake.calls("cuMemAlloc"), 0);
  options.kv_pages = 14;
  EXPECT_TRUE(open_batch(make_model(1), options, fake.platform()));
  EXPECT_GT(fake.calls("cuMemAlloc"), 0);
  options.kv_pages = 1 << 20;
  const auto large = open_batch(make_model(1), options, fake.platform());
  EXPECT_EQ(large.error().code, Code::out_of_memory);
  EXPECT_NE(large.error().text().find(" pages would fit"), std::string::npos)
      << large.error().text();
  options.session.plan.kv_pages = 4;
  options.kv_pages = 0;
  EXPECT_NE(open_batch(make_model(1), options, fake.platform())
                .error()
                .message.find("BatchOptions::kv_pages"),
            std::string::npos);
  for (const ExecutorKind kind : {ExecutorKind::graph, ExecutorKind::cpu}) {
    SessionOptions session = options.session;
    session.executor = kind;
    session.plan.kv = Format::f16;
    session.plan.kv_pages = 4;
    const auto refused = open_session(make_model(1), session, fake.platform());
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("BatchOptions::kv_pages"), std::string::npos);
  }
}

TEST(PagedOptions, NameTheFormatThatWouldFit) {
  BatchOptions options = paged_options(1 << 20);
  options.session.plan.kv = Format::f32;
  std::optional<FakeDriver> fake(std::in_place, FakeOptions{.execute = false});
  const auto refusal = [&] {
    return open_batch(make_model(1), options, fake->platform()).error().text();
  };
  const std::string all = refusal();
  const std::int64_t page = 2 * 16 * 128 * 4;  // bytes
  const std::int64_t others =
      std::stoll(all.substr(all.find("needed: ") + 8)) - options.kv_pages * page;
  fake.emplace(FakeOptions{.execute = false, .memory = std::size_t(others + page - 1)});
  const std::string less = refusal();
  EXPECT_NE(less.find("1 page with a KV cache in f16 would fit (or 3 with a KV cache in q8_0)"),
            std::string::npos)
      << less;
}

}  // namespace
}  // namespace lathe::testing
