// Owns random histories of a batch.
#include "tests/runtime/batch_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

namespace lathe::testing {

using verification::Random;

namespace {

// What a sequence did: tokens fed, or a step with as many rows and what was chosen after each, or a
// return to a length.
struct Event {
  enum class Kind { feed, step, rollback } kind;
  std::vector<std::int32_t> tokens = {}, chosen = {};
  int length = 0;
};
struct History {
  Sampling sampling;
  std::vector<Event> events;
  std::int32_t next = 1;  // to be stepped
};

class Schedule {
 public:
  Schedule(Batch& batch, Random& random)
      : batch_(batch), random_(random), vocab_(batch.plan().spec.vocab) {}

  void run(int events) {
    for (int i = 0; i < events; ++i) {
      const int kind = running_.empty() ? 0 : random_.below(8);
      if (kind == 0) join();
      if (kind == 1) feed();
      if (kind == 2) rollback();
      if (kind == 3) copy();
      if (kind == 4 && running_.size() > 1) leave();
      if (kind >= 5) step();
      if (::testing::Test::HasFatalFailure()) return;
    }
    while (!running_.empty()) leave();
    for (const History& history : ended_) replay(history);
  }

 private:
  int any() {
    auto at = running_.begin();
    std::advance(at, random_.below(static_cast<int>(running_.size())));
    return at->first;
  }
  std::int32_t token() { return random_.below(vocab_); }
  int length(int sequence) { return batch_.length(sequence).value(); }
  int room(int sequence) { return batch_.plan().options.context - length(sequence); }

  void join() {
    Sampling sampling;
    if (random_.below(2) == 0)
      sampling = {
          .temperature = 1, .repeat_penalty = 1.2f, .seed = std::uint64_t(random_.below(9))};
    const auto joined = batch_.join(sampling);
    if (!joined) {
      EXPECT_EQ(joined.error().code, Code::out_of_range) << joined.error().text();
      return;
    }
    running_[*joined] = {sampling, {}, 1};
  }
  void feed() {
    const int sequence = any();
    std::vector<std::int32_t> tokens(std::size_t(1 + random_.below(40)));
    if (std::ssize(tokens) > room(sequence)) return;
    for (std::int32_t& t : tokens) t = token();
    ASSERT_TRUE(batch_.feed(sequence, tokens));
    running_[sequence].events.push_back({Event::Kind::feed, tokens});
  }
  void rollback() {
    const int sequence = any(), to = random_.below(length(sequence) + 1);
    ASSERT_TRUE(batch_.rollback(sequence, to));
    running_[sequence].events.push_back({Event::Kind::rollback, {}, {}, to});
  }
  void copy() {
    const int from = any(), to = any();
    const int count = random_.below(length(from) + 1);
    const History source = running_[from];
    History& target = running_[to];
    ASSERT_TRUE(batch_.copy(from, to, count));
    target.events = source.events;
    for (Event& event : target.events) event.chosen.clear();  // by the rules of another
    target.events.push_back({Event::Kind::rollback, {}, {}, count});
  }
  void leave() {
    const int sequence = any();
    ASSERT_TRUE(batch_.leave(sequence));
    ended_.push_back(running_[sequence]);
    running_.erase(sequence);
  }
  // A row for each sequence, or some in a row, of which none, some or all are what it would choose.
  void step() {
    std::vector<BatchRow> rows;
    std::map<int, std::vector<std::int32_t>> of;
    for (auto& [sequence, history] : running_) {
      const int count = random_.below(3) == 0 ? 1 + random_.below(4) : 1;
      if (count > room(sequence) || rows.size() + std::size_t(count) > 24) continue;
      for (int i = 0; i < count; ++i) {
        of[sequence].push_back(i == 0 ? std::max(history.next, 0) : token());
        rows.push_back({sequence, of[sequence].back()});
      }
    }
    if (rows.empty()) return;
    const auto chosen = batch_.step(rows);
    ASSERT_TRUE(chosen) << chosen.error().text();
    std::map<int, std::vector<std::int32_t>> after;
    for (std::size_t i = 0; i < rows.size(); ++i) after[rows[i].sequence].push_back((*chosen)[i]);
    for (const auto& [sequence, tokens] : of) {
      History& history = running_[sequence];
      history.events.push_back({Event::Kind::step, tokens, after[sequence]});
      history.next = after[sequence].back();
    }
  }

  void replay(const History& history) {
    const auto sequence = batch_.join(history.sampling);
    ASSERT_TRUE(sequence);
    for (const Event& event : history.events) {
      if (event.kind == Event::Kind::feed) {
        ASSERT_TRUE(batch_.feed(*sequence, event.tokens));
      }
      if (event.kind == Event::Kind::rollback) {
        ASSERT_TRUE(batch_.rollback(*sequence, event.length));
      }
      if (event.kind != Event::Kind::step) continue;
      // One by one: neighbouring rows of one sequence must not matter either.
      for (std::size_t i = 0; i < event.tokens.size(); ++i) {
        const BatchRow row{*sequence, event.tokens[i]};
        const auto chosen = batch_.step({&row, 1});
        ASSERT_TRUE(chosen) << chosen.error().text();
        if (!event.chosen.empty()) {
          EXPECT_EQ(chosen->front(), event.chosen[i]);
        }
      }
    }
    ASSERT_TRUE(batch_.leave(*sequence));
  }

  Batch& batch_;
  Random& random_;
  const int vocab_;
  std::map<int, History> running_;
  std::vector<History> ended_;
};

}  // namespace

void run_schedule(Batch& batch, Random& random, int events) {
  Schedule(batch, random).run(events);
}

}  // namespace lathe::testing
