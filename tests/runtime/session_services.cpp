// Owns what sessions on any device are held to beside decoding.
#include "tests/runtime/session_services.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/runtime/drawn_text.h"

namespace lathe::testing {
namespace {

using Tokens = std::vector<std::int32_t>;
using Floats = std::vector<float>;

Floats logits_after(Session& session, std::int32_t token) {
  EXPECT_TRUE(session.step(token));
  const auto logits = session.logits();
  EXPECT_TRUE(logits) << logits.error().text();
  return logits ? Floats(logits->begin(), logits->end()) : Floats();
}

// What was read and is written back is what was there.
void expect_round_trip(Session& session) {
  const int length = session.length();
  const ModelSpec& spec = session.plan().spec;
  const Floats before = logits_after(session, 9);
  Floats values(std::size_t(length * spec.kv_heads * spec.head_dim));
  for (int layer = 0; layer < spec.layers; ++layer) {
    for (const KvPart part : {KvPart::keys, KvPart::values}) {
      const KvRange range{part, layer, 0, length};
      std::ranges::fill(values, 0.0f);
      ASSERT_TRUE(session.read_kv(range, values));
      EXPECT_NE(std::ranges::count(values, 0.0f), std::ssize(values));
      Floats halved = values;
      for (float& value : halved) value /= 2;
      ASSERT_TRUE(session.write_kv(range, halved));
      ASSERT_TRUE(session.rollback(length));
      EXPECT_NE(logits_after(session, 9), before);
      ASSERT_TRUE(session.write_kv(range, values));
    }
  }
  ASSERT_TRUE(session.rollback(length));
  EXPECT_EQ(logits_after(session, 9), before);
  ASSERT_TRUE(session.rollback(length));
}

void expect_snapshots(Session& session, Session& other) {
  const auto snapshot = session.snapshot(session.length() - 2);
  ASSERT_TRUE(snapshot) << snapshot.error().text();
  Tokens expected(6), found(6);
  ASSERT_TRUE(session.rollback(snapshot->length()));
  ASSERT_TRUE(session.generate(3, expected));
  ASSERT_TRUE(other.step(1));
  ASSERT_TRUE(other.restore(*snapshot));
  EXPECT_FALSE(other.logits());
  ASSERT_TRUE(other.generate(3, found));
  EXPECT_EQ(found, expected);
  ASSERT_TRUE(other.reset());
  EXPECT_EQ(other.length(), 0);
}

// Where everything is allowed the host's choice is the device's.
void expect_choices(Session& session) {
  const Constraint odd = [](std::span<const std::int32_t>, std::span<std::uint32_t> allowed) {
    std::ranges::fill(allowed, 0xaaaaaaaau);
  };
  for (const Sampling& rules : kSamplingRules) {
    ASSERT_TRUE(session.set_sampling(rules));
    std::int32_t token = 3;
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(session.step(token));
      token = session.sampled().value();
      EXPECT_EQ(session.choose({}).value(), token);
    }
    Tokens tokens(4);
    ASSERT_EQ(session.generate_constrained(token, tokens, {}, odd).value(), 4);
    for (const std::int32_t chosen : tokens) EXPECT_EQ(chosen % 2, 1);
    const std::vector<std::uint32_t> none(token_set_words(session.plan().spec.vocab));
    EXPECT_EQ(session.choose(none).value(), -1);
    ASSERT_TRUE(session.rollback(0));
  }
}

}  // namespace

void expect_services(Session& session, Session& other) {
  for (const std::int32_t token : {3, 50, 7, 7, 21}) ASSERT_TRUE(session.step(token));
  expect_round_trip(session);
  expect_snapshots(session, other);
  ASSERT_TRUE(session.rollback(0));
  expect_choices(session);
}

}  // namespace lathe::testing
