// Owns the tests of scratch placement, in the abstract and in whole plans.
#include "plan/arena.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>

#include "lathe/codegen/kernel_table.h"
#include "lathe/plan/plan.h"
#include "tests/plan/tiny_models.h"

namespace lathe {
namespace {

using testing::TinyModel;

TEST(Arena, LiveBuffersNeverOverlap) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<Lifetime> buffers(1 + random() % 40);
    for (Lifetime& buffer : buffers) {
      buffer.bytes = 1 + static_cast<std::int64_t>(random() % 5000);
      buffer.first = static_cast<int>(random() % 30);
      buffer.last = buffer.first + static_cast<int>(random() % 10);
    }
    const ArenaLayout layout = place_buffers(buffers);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      EXPECT_EQ(layout.offsets[i] % kArenaAlignment, 0);
      EXPECT_LE(layout.offsets[i] + buffers[i].bytes, layout.bytes);
      for (std::size_t j = 0; j < i; ++j) {
        const bool together =
            buffers[i].first <= buffers[j].last && buffers[j].first <= buffers[i].last;
        const bool apart = layout.offsets[i] + buffers[i].bytes <= layout.offsets[j] ||
                           layout.offsets[j] + buffers[j].bytes <= layout.offsets[i];
        EXPECT_TRUE(!together || apart) << "buffers " << i << " and " << j;
      }
    }
  }
}

TEST(Arena, BuffersThatDoNotMeetShareMemory) {
  const Lifetime buffers[] = {{1000, 0, 1}, {1000, 1, 2}, {1000, 2, 3}};
  const ArenaLayout layout = place_buffers(buffers);
  EXPECT_EQ(layout.offsets, (std::vector<std::int64_t>{0, 1024, 0}));
  EXPECT_EQ(layout.bytes, 2048);
  EXPECT_EQ(place_buffers({}).bytes, 0);
}

// Replays a plan's accesses. Every write stamps its words; a read must find, in every word, the
// stamp of the last write to exactly its region: then nothing read was left over from an earlier
// token or overwritten by another buffer.
class ArenaReplay {
 public:
  explicit ArenaReplay(const Plan& plan)
      : plan_(plan), words_(static_cast<std::size_t>(plan.arena_bytes / 4)) {}

  std::string first_fault() {
    for (const Step& step : plan_.steps) {
      const auto params = row(step.key.type).params(step.key);
      for (std::size_t i = 0; i < params.size(); ++i) {
        if (!in_arena(step.operands[i])) continue;
        if (params[i].access != Access::write && !intact(step.operands[i])) {
          return step.label + " reads what was not written for it";
        }
      }
      for (std::size_t i = 0; i < params.size(); ++i) {
        if (!in_arena(step.operands[i]) || params[i].access == Access::read) continue;
        for (std::size_t j = 0; j < params.size(); ++j) {
          if (i != j && clash(step.operands[i], step.operands[j])) {
            return step.label + " writes over part of its own input";
          }
        }
        write(step.operands[i]);
      }
    }
    return intact(plan_.logits) ? "" : "the logits are overwritten";
  }

 private:
  static bool in_arena(const Operand& operand) { return operand.place == Place::scratch; }

  // Overlap that is not the in-place use of one region.
  static bool clash(const Operand& a, const Operand& b) {
    if (!in_arena(b) || (a.offset == b.offset && a.bytes == b.bytes)) return false;
    return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
  }

  void write(const Operand& operand) {
    ++stamp_;
    last_write_[{operand.offset, operand.bytes}] = stamp_;
    for (std::int64_t w = 0; w < operand.bytes / 4; ++w) word(operand, w) = stamp_;
  }

  bool intact(const Operand& operand) {
    const auto found = last_write_.find({operand.offset, operand.bytes});
    if (found == last_write_.end()) return false;
    for (std::int64_t w = 0; w < operand.bytes / 4; ++w) {
      if (word(operand, w) != found->second) return false;
    }
    return true;
  }

  int& word(const Operand& operand, std::int64_t index) {
    return words_.at(static_cast<std::size_t>(operand.offset / 4 + index));
  }

  const Plan& plan_;
  std::vector<int> words_;  // stamp of the last write, 0 = none
  std::map<std::pair<std::int64_t, std::int64_t>, int> last_write_;
  int stamp_ = 0;
};

Plan plan_of(const TinyModel& model, const PlanOptions& options) {
  const auto image = testing::tiny_model(model);
  const auto file = GgufFile::from_bytes(image.bytes, "tiny.gguf");
  auto plan = build_plan(**file, options);
  EXPECT_TRUE(plan) << (plan ? "" : plan.error().text());
  return std::move(plan).value();
}

TEST(Arena, NoStepOfAnyPlanReadsWhatWasNotWrittenForIt) {
  for (const TinyModel& model : {testing::tiny_llama(), testing::tiny_qwen2(),
                                 testing::tiny_qwen3(), testing::tiny_gemma3()}) {
    for (const int splits : {0, 1, 5, 64}) {
      PlanOptions options;
      options.attention_splits = splits;
      const Plan plan = plan_of(model, options);
      EXPECT_EQ(ArenaReplay(plan).first_fault(), "") << model.architecture << " " << splits;
    }
  }
}

TEST(Arena, TheReplayNoticesABufferOutOfPlace) {
  const Plan good = plan_of(testing::tiny_llama(), {});
  for (std::size_t s = 1; s + 1 < good.steps.size(); ++s) {
    Plan bad = good;
    Operand& output = bad.steps[s].operands.back();
    if (output.place != Place::scratch || output.offset == 0) continue;
    output.offset -= 4;
    EXPECT_NE(ArenaReplay(bad).first_fault(), "") << bad.steps[s].label;
  }
}

TEST(Arena, LayersUseTheSamePlaces) {
  TinyModel model = testing::tiny_llama();
  const Plan two = plan_of(model, {});
  model.layers = 4;
  EXPECT_EQ(plan_of(model, {}).arena_bytes, two.arena_bytes);
}

}  // namespace
}  // namespace lathe
