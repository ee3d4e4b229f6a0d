// Holds sessions whose KV cache is of atoms to the oracles, with the device code emulated, to the
// services of any session, and to their refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "runtime/session_base.h"
#include "tests/runtime/emulated_driver.h"
#include "tests/runtime/relative_error.h"
#include "tests/runtime/session_services.h"
#include "tests/runtime/tiny_model.h"
#include "verification/random.h"

namespace lathe::testing {
namespace {

using Floats = std::vector<float>;
using Tokens = std::vector<std::int32_t>;

class KvAtomsSession : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(fake_.violations(), std::vector<std::string>{}); }

  SessionOptions options(ExecutorKind executor, int count, int terms) const {
    SessionOptions options;
    options.executor = executor;
    options.plan.context = 32;
    options.plan.atoms = {.count = count, .terms = terms};
    options.threads = 2;
    options.disk_cache = false;
    return options;
  }
  std::unique_ptr<Session> open(const SessionOptions& options) {
    auto session = open_session(file_, options, fake_.platform());
    EXPECT_TRUE(session) << session.error().text();
    return session ? std::move(*session) : nullptr;
  }
  std::unique_ptr<Session> open(ExecutorKind executor, int count = 96, int terms = 4) {
    return open(options(executor, count, terms));
  }
  void expect_refused(const SessionOptions& options, const char* words) {
    const auto session = open_session(file_, options, fake_.platform());
    ASSERT_FALSE(session) << words;
    EXPECT_NE(session.error().message.find(words), std::string::npos) << session.error().text();
  }
  static Floats logits(Session& session) {
    const auto values = session.logits();
    EXPECT_TRUE(values) << values.error().text();
    return values ? Floats(values->begin(), values->end()) : Floats();
  }
  Floats read(Session& session, KvPart part, int layer, int positions) {
    const ModelSpec& spec = session.plan().spec;
    Floats values(std::size_t(positions * spec.kv_heads * spec.head_dim));
    EXPECT_TRUE(session.read_kv({part, layer, 0, positions}, values));
    return values;
  }

  FakeDriver fake_{emulated(4, verification::fresh_seed())};
  const TinyModel shape_ = tiny_llama();
  std::shared_ptr<const GgufFile> file_ = make_model(shape_);
  const Tokens prompt_ = {3, 77, 5, 31, 9, 3, 60, 12, 41, 2};
};

// f32 and double precision may choose other atoms where two are nearly as near: of these weights
// and this prompt they choose the same.
TEST_F(KvAtomsSession, EveryExecutorIsTheOracles) {
  const auto cpu = open(ExecutorKind::cpu);
  ASSERT_TRUE(cpu);
  ASSERT_TRUE(cpu->feed(prompt_));
  const Floats expected = logits(*cpu);
  Tokens run(6);
  ASSERT_TRUE(cpu->generate(cpu->sampled().value(), run));
  Floats eager;
  for (const ExecutorKind executor : {ExecutorKind::eager, ExecutorKind::graph}) {
    const auto session = open(executor);
    ASSERT_TRUE(session);
    EXPECT_EQ(session->report().chunk, 0);
    EXPECT_EQ(session->report().kv_bytes, 2 * shape_.layers * 32 * shape_.kv_heads * 4 * 4);
    ASSERT_TRUE(session->feed(prompt_));
    const Floats found = logits(*session);
    EXPECT_LT(relative_error(found, expected), 1e-4) << executor_name(executor);
    if (eager.empty()) eager = found;
    EXPECT_EQ(found, eager);
    Tokens chosen(run.size());
    ASSERT_TRUE(session->generate(session->sampled().value(), chosen));
    EXPECT_EQ(chosen, run);
  }
  const auto automatic = open(ExecutorKind::automatic);
  ASSERT_TRUE(automatic);
  EXPECT_EQ(automatic->report().executor, "graph");
}

// Of the axes, with a term for each: what is read and written back stays as it is.
TEST_F(KvAtomsSession, HasTheServicesOfAnySession) {
  for (const ExecutorKind executor : {ExecutorKind::cpu, ExecutorKind::graph}) {
    const auto session = open(executor, shape_.head_dim, shape_.head_dim);
    const auto other = open(executor, shape_.head_dim, shape_.head_dim);
    ASSERT_TRUE(session && other);
    expect_services(*session, *other);
  }
}

TEST_F(KvAtomsSession, KeysAndValuesAreSumsOfAtoms) {
  const auto session = open(ExecutorKind::eager, 64, 3);
  SessionOptions exact = options(ExecutorKind::eager, 64, 3);
  exact.plan.atoms = {};
  const auto plain = open(exact);
  ASSERT_TRUE(session && plain);
  ASSERT_TRUE(session->feed(prompt_));
  ASSERT_TRUE(plain->feed(prompt_));
  const int positions = int(prompt_.size());
  for (const KvPart part : {KvPart::keys, KvPart::values}) {
    const Floats found = read(*session, part, 0, positions);
    const double error = relative_error(found, read(*plain, part, 0, positions));
    EXPECT_GT(error, 0.01);
    EXPECT_LT(error, 0.8);
    const auto capture = session->capture_kv(positions, 1 << 20);
    ASSERT_TRUE(capture) << capture.error().text();
    const Floats& all = part == KvPart::keys ? capture->keys : capture->values;
    EXPECT_TRUE(std::equal(found.begin(), found.end(), all.begin()));
  }
  ASSERT_TRUE(session->reset());
  ASSERT_TRUE(session->feed(prompt_));  // the atoms are still there
  const auto again = open(ExecutorKind::eager, 64, 3);
  ASSERT_TRUE(again && again->feed(prompt_));
  EXPECT_EQ(logits(*session), logits(*again));
}

// By the oracles with the same atoms, also where these are the caller's.
TEST_F(KvAtomsSession, AreHeldToTheOracles) {
  SessionOptions wanted = options(ExecutorKind::cpu, shape_.head_dim, 5);
  wanted.parity = 0.9999;
  verification::Random random(4);
  for (int atom = 0; atom < shape_.head_dim; ++atom) {
    double squares = 0;
    Floats values(static_cast<std::size_t>(shape_.head_dim));
    for (float& value : values) value = random.normal(), squares += double{value} * value;
    for (const float value : values)
      wanted.plan.atoms.values.push_back(static_cast<float>(value / std::sqrt(squares)));
  }
  const auto session = open(wanted);
  ASSERT_TRUE(session);
  EXPECT_GT(session->report().parity, 0.9999);
}

TEST_F(KvAtomsSession, SnapshotsAreOfTheSameAtoms) {
  const auto session = open(ExecutorKind::cpu, 64, 3);
  ASSERT_TRUE(session && session->feed(prompt_));
  const auto snapshot = session->snapshot(4);
  ASSERT_TRUE(snapshot) << snapshot.error().text();
  EXPECT_EQ(snapshot->bytes(), 2 * shape_.layers * 4 * shape_.kv_heads * 3 * 4);
  const auto expect_not_taken = [&](const std::unique_ptr<Session>& other, const char* words) {
    ASSERT_TRUE(other);
    const auto taken = other->restore(*snapshot);
    ASSERT_FALSE(taken);
    EXPECT_NE(taken.error().message.find(words), std::string::npos) << taken.error().message;
  };
  expect_not_taken(open(ExecutorKind::cpu, 64, 4),
                   "sums of 3 of 64 atoms, this one is in sums of 4");
  SessionOptions plain = options(ExecutorKind::cpu, 64, 3);
  plain.plan.atoms = {};
  expect_not_taken(open(plain), "sums of 3 of 64 atoms, this one is in f32");
  SessionOptions others = options(ExecutorKind::cpu, 64, 3);
  others.plan.atoms.values.assign(std::size_t(64 * shape_.head_dim), 0);
  for (int i = 0; i < 64; ++i)
    others.plan.atoms.values[std::size_t(i * shape_.head_dim + i % shape_.head_dim)] = 1;
  expect_not_taken(open(others), "or of other atoms");
}

TEST_F(KvAtomsSession, IsRefusedWhereNoKernelHasIt) {
  file_ = make_model(fusible(shape_));
  expect_refused(options(ExecutorKind::mega, 64, 3), "a KV cache of atoms");
  SessionOptions full = options(ExecutorKind::graph, 64, 3);
  full.plan.fusion = Fusion::full;
  expect_refused(full, "a KV cache of atoms");
  full = options(ExecutorKind::cpu, 64, 3);
  full.plan.fusion = Fusion::full;
  expect_refused(full, "a KV cache of atoms");
  BatchOptions batch;
  batch.session = options(ExecutorKind::graph, 64, 3);
  for (const int sequences : {1, 3}) {
    batch.sequences = sequences;
    const auto opened = open_batch(file_, batch, fake_.platform());
    ASSERT_FALSE(opened);
    EXPECT_NE(opened.error().message.find("KV cache of atoms"), std::string::npos)
        << opened.error().message;
  }
  const auto session = open(ExecutorKind::graph);
  ASSERT_TRUE(session);
  ASSERT_FALSE(session->report().notes.empty());
  EXPECT_NE(session->report().notes.back().find("a KV cache of atoms"), std::string::npos);
}

}  // namespace
}  // namespace lathe::testing
