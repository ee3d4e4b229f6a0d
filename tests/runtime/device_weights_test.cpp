// Holds sessions on weights that the caller has on the device to sessions that upload them. The
// file that they are given with has other weights, so that a read of those shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "runtime/session_base.h"
#include "tests/runtime/emulated_driver.h"
#include "tests/runtime/engine_weights.h"
#include "tests/runtime/tiny_model.h"
#include "verification/random.h"

namespace lathe::testing {
namespace {

// Weights of an engine around the session, in memory that the fake device counts as its own.
class LentWeights {
 public:
  LentWeights(FakeDriver& fake, std::shared_ptr<const GgufFile> file, Has has)
      : fake_(fake),
        weights_(std::move(file), has, [this](const auto& content) { return place(content); }) {}
  ~LentWeights() {
    for (const std::uint64_t address : lent_) {
      fake_.take_back(address);
      std::free(reinterpret_cast<void*>(address - shift));
    }
  }
  DeviceWeights hook() { return weights_.hook(); }

  std::size_t shift = 0;  // added to addresses: misaligns them

 private:
  std::uint64_t place(std::span<const std::byte> content) {
    auto* memory = static_cast<std::byte*>(
        std::aligned_alloc(256, (content.size() + shift + 255) / 256 * 256));
    std::memcpy(memory + shift, content.data(), content.size());
    const std::uint64_t address = reinterpret_cast<std::uint64_t>(memory) + shift;
    fake_.lend(address, content.size(), false);
    lent_.push_back(address);
    return address;
  }

  FakeDriver& fake_;
  EngineWeights weights_;
  std::vector<std::uint64_t> lent_;
};

TinyModel shape(std::uint32_t seed) {
  TinyModel model = fusible(tiny_llama());
  model.seed = seed;
  return model;
}

using Logits = std::vector<float>;

template <typename Handle>
Logits decode(Handle& session) {
  std::vector<std::int32_t> tokens(3);
  EXPECT_TRUE(session.generate(5, tokens));
  const auto logits = session.logits();
  EXPECT_TRUE(logits) << logits.error().text();
  return logits ? Logits(logits->begin(), logits->end()) : Logits();
}

std::int64_t bytes_in(const Plan& plan, Layout layout) {
  std::int64_t bytes = 0;
  for (const WeightSlot& slot : plan.weights)
    if (slot.layout == layout) bytes += slot.bytes;
  return bytes;
}

class DeviceWeightsTest : public ::testing::TestWithParam<ExecutorKind> {
 protected:
  void TearDown() override {
    EXPECT_EQ(fake_.leaks(), "");
    EXPECT_EQ(fake_.violations(), std::vector<std::string>{});
  }
  SessionOptions options_for(Fusion fusion) const {
    SessionOptions options = emulated_options(GetParam());
    options.plan.fusion = fusion;
    return options;
  }

  FakeDriver fake_{emulated(3, verification::fresh_seed())};
  std::shared_ptr<const GgufFile> file_ = make_model(shape(1));
  std::shared_ptr<const GgufFile> other_ = make_model(shape(2));
};

INSTANTIATE_TEST_SUITE_P(All, DeviceWeightsTest,
                         ::testing::Values(ExecutorKind::eager, ExecutorKind::graph,
                                           ExecutorKind::mega),
                         [](const auto& info) { return executor_name(info.param); });

TEST_P(DeviceWeightsTest, AreReadInPlaceOrMadeTilesOf) {
  for (const Fusion fusion : {Fusion::none, Fusion::full}) {
    if (fusion == Fusion::none && GetParam() == ExecutorKind::mega) continue;
    SessionOptions options = options_for(fusion);
    Logits expected;
    {
      const auto plain = open_session(file_, options, fake_.platform());
      ASSERT_TRUE(plain) << plain.error().text();
      EXPECT_EQ((*plain)->report().borrowed_bytes, 0);
      expected = decode(**plain);
      ASSERT_NE(decode(**open_session(other_, options, fake_.platform())), expected);
    }
    for (const Has has : {Has::blocks, Has::tiles}) {
      LentWeights weights(fake_, file_, has);
      options.device_weights = weights.hook();
      const auto session = open_session(other_, options, fake_.platform());
      ASSERT_TRUE(session) << session.error().text();
      EXPECT_EQ(decode(**session), expected);
      const Plan& plan = (*session)->plan();
      const std::int64_t raw = bytes_in(plan, Layout::raw), tiles = bytes_in(plan, Layout::tiles);
      EXPECT_EQ(tiles > 0, fusion == Fusion::full);
      EXPECT_EQ((*session)->report().borrowed_bytes, has == Has::tiles ? raw + tiles : raw);
    }
  }
}

TEST_P(DeviceWeightsTest, WhatIsNowhereIsUploaded) {
  SessionOptions options = options_for(Fusion::full);
  const Logits expected = decode(**open_session(file_, options, fake_.platform()));
  LentWeights weights(fake_, file_, Has::some_blocks);
  options.device_weights = weights.hook();
  const auto session = open_session(file_, options, fake_.platform());
  ASSERT_TRUE(session) << session.error().text();
  EXPECT_EQ(decode(**session), expected);
}

TEST_P(DeviceWeightsTest, AMisalignedAddressIsRefusedByName) {
  for (const Has has : {Has::blocks, Has::tiles}) {
    LentWeights weights(fake_, file_, has);
    weights.shift = 8;
    SessionOptions options = options_for(Fusion::full);
    options.device_weights = weights.hook();
    const auto session = open_session(file_, options, fake_.platform());
    ASSERT_FALSE(session);
    EXPECT_EQ(session.error().code, Code::invalid_argument);
    EXPECT_NE(session.error().message.find(".weight is not aligned to "), std::string::npos)
        << session.error().message;
  }
}

TEST(DeviceWeightsOfOthers, ServeABatchAndNotTheCpu) {
  FakeDriver fake(emulated(3, verification::fresh_seed()));
  {
    const auto file = make_model(shape(1)), other = make_model(shape(2));
    BatchOptions options;
    options.session = emulated_options(ExecutorKind::graph);
    options.sequences = 1;
    options.rows = 2;
    const auto text_of = [&](const std::shared_ptr<const GgufFile>& of) {
      const auto batch = open_batch(of, options, fake.platform());
      EXPECT_TRUE(batch) << batch.error().text();
      const int sequence = (*batch)->join().value();
      const BatchRow row = {sequence, 5};
      EXPECT_TRUE((*batch)->step({&row, 1}));
      const auto logits = (*batch)->logits(0).value();
      return Logits(logits.begin(), logits.end());
    };
    const Logits expected = text_of(file);
    LentWeights weights(fake, file, Has::tiles);
    options.session.device_weights = weights.hook();
    EXPECT_EQ(text_of(other), expected);

    SessionOptions cpu = emulated_options(ExecutorKind::cpu);
    cpu.device_weights = weights.hook();
    const auto refused = open_session(file, cpu, fake.platform());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::invalid_argument);
  }
  EXPECT_EQ(fake.leaks(), "");
  EXPECT_EQ(fake.violations(), std::vector<std::string>{});
}

}  // namespace
}  // namespace lathe::testing
