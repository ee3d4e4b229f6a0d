// Holds the keys and values that a session gives away and takes to the model, to the cache's format
// and to what later steps compute from them: on the cpu executor and on the fake driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "runtime/session_base.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/session_services.h"
#include "tests/runtime/tiny_model.h"
#include "verification/random.h"

namespace lathe::testing {
namespace {

using Floats = std::vector<float>;
using Tokens = std::vector<std::int32_t>;

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

struct Case {
  ExecutorKind executor;
  Fusion fusion;
  Format kv;
};
std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  return std::string(executor_name(info.param.executor)) +
         (info.param.fusion == Fusion::full ? "_full_" : "_none_") + row(info.param.kv).name;
}

class KvServices : public ::testing::TestWithParam<Case> {
 protected:
  void TearDown() override { EXPECT_EQ(fake_.violations(), std::vector<std::string>{}); }

  SessionOptions options(int context = 32) const {
    SessionOptions options;
    options.executor = GetParam().executor;
    options.plan.fusion = GetParam().fusion;
    options.plan.kv = GetParam().kv;
    options.plan.context = context;
    options.threads = 2;
    options.disk_cache = false;
    return options;
  }
  std::unique_ptr<Session> open(const SessionOptions& options,
                                const std::shared_ptr<const GgufFile>& file) {
    auto session = open_session(file, options, fake_.platform());
    EXPECT_TRUE(session) << session.error().text();
    return session ? std::move(*session) : nullptr;
  }
  std::unique_ptr<Session> open() { return open(options(), file_); }

  // A token at a time, so that all sessions compute the same.
  static void step_all(Session& session, const Tokens& tokens) {
    for (const std::int32_t token : tokens) ASSERT_TRUE(session.step(token));
  }
  static Floats logits(Session& session) {
    const auto values = session.logits();
    if (!values) {
      ADD_FAILURE() << values.error().text();
      return {};
    }
    return {values->begin(), values->end()};
  }
  static int width(const Session& session) {
    return session.plan().spec.kv_heads * session.plan().spec.head_dim;
  }
  static Floats read(Session& session, const KvRange& range) {
    Floats values(std::size_t(range.positions * width(session)), kPoison);
    const auto done = session.read_kv(range, values);
    EXPECT_TRUE(done) << done.error().text();
    return values;
  }
  // How far a value may be from what was written where the greatest of its 32 neighbours is so.
  static double rounding(double value, double greatest) {
    switch (GetParam().kv) {
      case Format::f32:
        return 0;
      case Format::f16:
        return std::abs(value) * 0x1p-11 + 0x1p-25;
      default:
        return greatest * (0.5 / 127 + 0x1p-11) + 1e-9;
    }
  }

  FakeDriver fake_;
  std::shared_ptr<const GgufFile> file_ = make_model();
  const Tokens prompt_ = {3, 77, 5, 120, 9};
};

INSTANTIATE_TEST_SUITE_P(All, KvServices,
                         ::testing::Values(Case{ExecutorKind::cpu, Fusion::none, Format::f32},
                                           Case{ExecutorKind::cpu, Fusion::none, Format::f16},
                                           Case{ExecutorKind::cpu, Fusion::full, Format::q8_0},
                                           Case{ExecutorKind::eager, Fusion::none, Format::f32},
                                           Case{ExecutorKind::graph, Fusion::full, Format::f16},
                                           Case{ExecutorKind::graph, Fusion::full, Format::q8_0}),
                         name_of);

// The product of a matrix of the file with the normed embedding of a token, in double precision.
std::vector<double> projected(const GgufFile& file, const char* name, std::int32_t token) {
  const auto floats = [&](const char* tensor_name, std::int64_t first, std::int64_t count) {
    const GgufTensor& tensor = *file.tensor(tensor_name);
    const FormatRow& format = row(format_by_ggml_type(tensor.ggml_type).value());
    Floats out(static_cast<std::size_t>(count));
    format.unpack(file.data(tensor).data() + first / format.block * format.bytes, count,
                  out.data());
    return out;
  };
  const std::int64_t hidden = file.tensor(name)->k();
  const Floats x = floats("token_embd.weight", token * hidden, hidden);
  const Floats scale = floats("blk.0.attn_norm.weight", 0, hidden);
  double squares = 0;
  for (const float v : x) squares += double(v) * v;
  const double factor = 1 / std::sqrt(squares / double(hidden) + 1e-5);
  std::vector<double> out;
  for (std::int64_t r = 0; r < file.tensor(name)->rows(); ++r) {
    const Floats weights = floats(name, r * hidden, hidden);
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += double(weights[i]) * x[i] * factor * scale[i];
    out.push_back(sum);
  }
  return out;
}

// Values of the first layer are a product of the token's embedding, and so is its key at position
// 0, where nothing turns.
TEST_P(KvServices, ReadsWhatTheModelPutThere) {
  const auto session = open();
  ASSERT_TRUE(session);
  step_all(*session, prompt_);
  const auto expect_near = [&](const Floats& found, const std::vector<double>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    double error = 0, size = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      error += (found[i] - expected[i]) * (found[i] - expected[i]);
      size += expected[i] * expected[i];
    }
    EXPECT_LE(std::sqrt(error / size), GetParam().kv == Format::q8_0 ? 1e-2 : 2e-3);
  };
  for (int p = 0; p < int(prompt_.size()); ++p)
    expect_near(read(*session, {KvPart::values, 0, p, 1}),
                projected(*file_, "blk.0.attn_v.weight", prompt_[std::size_t(p)]));
  expect_near(read(*session, {KvPart::keys, 0, 0, 1}),
              projected(*file_, "blk.0.attn_k.weight", prompt_[0]));
}

TEST_P(KvServices, WritesRoundToTheFormatAndTouchNothingElse) {
  const auto session = open();
  ASSERT_TRUE(session);
  step_all(*session, prompt_);
  const auto everything = [&] {
    std::vector<Floats> all;
    for (int layer = 0; layer < 2; ++layer)
      for (const KvPart part : {KvPart::keys, KvPart::values})
        all.push_back(read(*session, {part, layer, 0, int(prompt_.size())}));
    return all;
  };
  std::vector<Floats> expected = everything();
  const std::uint64_t seed = verification::fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  verification::Random random(seed);
  const std::size_t w = std::size_t(width(*session));
  Floats written(2 * w);
  for (float& value : written) value = float(random.uniform(-3, 3));
  ASSERT_TRUE(session->write_kv({KvPart::values, 1, 2, 2}, written));
  const std::vector<Floats> found = everything();
  Floats& changed = expected[3];
  for (std::size_t i = 0; i < written.size(); ++i) {
    const auto block = written.begin() + std::ptrdiff_t(i / 32 * 32);
    const double greatest = std::abs(*std::max_element(
        block, block + 32, [](float a, float b) { return std::abs(a) < std::abs(b); }));
    const std::size_t at = 2 * w + i;
    EXPECT_NEAR(found[3][at], written[i], rounding(written[i], greatest)) << i;
    changed[at] = found[3][at];
  }
  EXPECT_EQ(found, expected);
}

// What was written is what later steps attend to: the prefix of one text under the tokens of
// another.
TEST_P(KvServices, LaterStepsAttendToWhatWasWritten) {
  const auto from = open(), to = open();
  ASSERT_TRUE(from && to);
  step_all(*from, prompt_);
  step_all(*to, {8, 8, 8, 8, 8});
  ASSERT_TRUE(from->step(40) && to->step(40));
  const Floats expected = logits(*from);
  EXPECT_NE(logits(*to), expected);
  ASSERT_TRUE(to->rollback(5));
  for (int layer = 0; layer < 2; ++layer)
    for (const KvPart part : {KvPart::keys, KvPart::values})
      ASSERT_TRUE(to->write_kv({part, layer, 0, 5}, read(*from, {part, layer, 0, 5})));
  ASSERT_TRUE(to->step(40));
  EXPECT_EQ(logits(*to), expected);
}

TEST_P(KvServices, CaptureIsPositionsThenHeadsUpToTheCap) {
  const auto session = open();
  ASSERT_TRUE(session);
  step_all(*session, prompt_);
  const int heads = session->plan().spec.kv_heads, d = session->plan().spec.head_dim;
  for (const int most : {0, 1, 3, 2 * heads, 1000}) {
    const auto capture = session->capture_kv(4, most);
    ASSERT_TRUE(capture) << capture.error().text();
    ASSERT_EQ(capture->vectors, std::min(most, 4 * heads));
    ASSERT_EQ(capture->head_dim, d);
    ASSERT_EQ(capture->values.size(), capture->keys.size());
    ASSERT_EQ(capture->keys.size(), std::size_t(2 * capture->vectors * d));
    for (int layer = 0; layer < 2; ++layer) {
      const Floats keys = read(*session, {KvPart::keys, layer, 0, 4});
      const Floats values = read(*session, {KvPart::values, layer, 0, 4});
      for (int v = 0; v < capture->vectors; ++v) {
        const auto key = capture->key(layer, v), value = capture->value(layer, v);
        EXPECT_TRUE(std::equal(key.begin(), key.end(), keys.begin() + v * d));
        EXPECT_TRUE(std::equal(value.begin(), value.end(), values.begin() + v * d));
      }
    }
  }
  EXPECT_EQ(session->capture_kv(6, 1).error().code, Code::out_of_range);
  EXPECT_EQ(session->capture_kv(1, -1).error().code, Code::invalid_argument);
}

// In the same session after others, in another with another context, and of a part.
TEST_P(KvServices, ASnapshotIsReturnedTo) {
  const Sampling rules{.temperature = 1, .repeat_penalty = 1.4f, .seed = 9};
  const auto text_after = [&](Session& session) {
    Tokens text(10);
    EXPECT_TRUE(session.set_sampling(rules));
    EXPECT_TRUE(session.generate(40, text));
    return std::pair(text, logits(session));
  };
  const auto session = open();
  ASSERT_TRUE(session);
  step_all(*session, prompt_);
  const auto whole = session->snapshot(5), part = session->snapshot(2);
  ASSERT_TRUE(whole && part);
  EXPECT_EQ(whole->length(), 5);
  EXPECT_EQ(Tokens(whole->tokens().begin(), whole->tokens().end()), prompt_);
  EXPECT_EQ(whole->format(), GetParam().kv);
  EXPECT_EQ(whole->bytes(), 5 * session->plan().counts().kv_bytes_per_position);
  const auto expected = text_after(*session);
  ASSERT_TRUE(session->rollback(2));
  const auto expected_of_part = text_after(*session);

  const auto other = open(options(64), file_), third = open(options(16), make_model());
  ASSERT_TRUE(other && third);
  step_all(*other, Tokens(20, 7));
  for (Session* each : {session.get(), other.get(), third.get()}) {
    ASSERT_TRUE(each->restore(*whole));
    EXPECT_EQ(each->length(), 5);
    EXPECT_EQ(each->logits().error().code, Code::invalid_argument);
    EXPECT_EQ(each->sampled().error().code, Code::invalid_argument);
    EXPECT_EQ(text_after(*each), expected);
    ASSERT_TRUE(each->restore(*part));
    EXPECT_EQ(text_after(*each), expected_of_part);
  }
  ASSERT_TRUE(session->restore(session->snapshot(0).value()));
  EXPECT_EQ(session->length(), 0);
}

// Where a session's caches are: in memory of the host, also on the fake driver.
struct Caches : SessionBase {
  static const Addresses& of(const Session& session) {
    return (static_cast<const SessionBase&>(session).*&Caches::addresses)();
  }
};

TEST_P(KvServices, AResetLeavesNoText) {
  const auto session = open();
  ASSERT_TRUE(session);
  step_all(*session, prompt_);
  const Floats before = logits(*session);
  const Addresses& at = Caches::of(*session);
  const auto bytes = std::size_t(session->plan().kv_bytes_per_layer());
  const auto has_text = [&](std::uint64_t cache) {
    const auto* from = reinterpret_cast<const char*>(cache);
    return std::any_of(from, from + bytes, [](char byte) { return byte != 0; });
  };
  EXPECT_TRUE(has_text(at.kv_k[0]) && has_text(at.kv_v[1]));
  ASSERT_TRUE(session->reset());
  EXPECT_EQ(session->length(), 0);
  EXPECT_EQ(session->logits().error().code, Code::invalid_argument);
  EXPECT_FALSE(has_text(at.kv_k[0]) || has_text(at.kv_v[0]) || has_text(at.kv_k[1]) ||
               has_text(at.kv_v[1]));
  step_all(*session, prompt_);
  EXPECT_EQ(logits(*session), before);
}

TEST_P(KvServices, AreWhatTheyAreOnAnyDevice) {
  const auto session = open(), other = open();
  ASSERT_TRUE(session && other);
  expect_services(*session, *other);
}

TEST_P(KvServices, WhatIsWrongIsRefusedByName) {
  const auto session = open();
  ASSERT_TRUE(session);
  step_all(*session, prompt_);
  const std::size_t w = std::size_t(width(*session));
  Floats values(5 * w);
  const auto refused = [&](const KvRange& range, std::size_t count, Code code, const char* words) {
    for (const bool reads : {true, false}) {
      const std::span all = std::span(values).first(count);
      const auto done = reads ? session->read_kv(range, all) : session->write_kv(range, all);
      ASSERT_FALSE(done);
      EXPECT_EQ(done.error().code, code);
      EXPECT_NE(done.error().message.find(words), std::string::npos) << done.error().message;
    }
  };
  fake_.reset_counts();
  refused({KvPart::keys, 2, 0, 1}, w, Code::out_of_range, "no layer 2");
  refused({KvPart::keys, -1, 0, 1}, w, Code::out_of_range, "no layer -1");
  refused({KvPart::keys, 0, 4, 2}, 2 * w, Code::out_of_range, "2 positions from 4");
  refused({KvPart::keys, 0, -1, 1}, w, Code::out_of_range, "from -1");
  refused({KvPart::keys, 0, 1 << 30, 1 << 30}, w, Code::out_of_range, "positions from");
  refused({KvPart::keys, 0, 0, -1}, 0, Code::out_of_range, "-1 positions");
  refused({KvPart::keys, 0, 0, 2}, w, Code::invalid_argument, "values, not");
  refused({KvPart(7), 0, 0, 1}, w, Code::invalid_argument, "keys or of values");
  EXPECT_EQ(session->snapshot(6).error().code, Code::out_of_range);
  EXPECT_EQ(session->snapshot(-1).error().code, Code::out_of_range);
  EXPECT_TRUE(session->read_kv({KvPart::keys, 1, 5, 0}, {}));
  EXPECT_EQ(fake_.calls(), 0);

  const KvSnapshot snapshot = session->snapshot(5).value();
  const auto refuses = [&](Session& other, Code code, const char* words) {
    step_all(other, {1, 2});
    const Floats before = logits(other);
    fake_.reset_counts();
    const auto done = other.restore(snapshot);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, code);
    EXPECT_NE(done.error().message.find(words), std::string::npos) << done.error().message;
    EXPECT_EQ(fake_.calls(), 0);
    EXPECT_EQ(other.length(), 2);
    EXPECT_EQ(logits(other), before);
  };
  TinyModel shape = model_shape(2);
  shape.seed = 2;  // other weights
  refuses(*open(options(), make_model(shape)), Code::invalid_argument, "another model");
  shape.seed = 1;
  shape.theta = 20000;  // the same weights, turned otherwise
  refuses(*open(options(), make_model(shape)), Code::invalid_argument, "another model");
  refuses(*open(options(4), file_), Code::out_of_range, "5 positions");
  SessionOptions format = options();
  format.plan.kv = GetParam().kv == Format::f16 ? Format::f32 : Format::f16;
  refuses(*open(format, file_), Code::invalid_argument, row(format.plan.kv).name);
}

TEST(KvServicesOfADevice, AFailureLeavesNothingUnderWay) {
  FakeDriver fake;
  SessionOptions options;
  options.executor = ExecutorKind::graph;
  options.plan.context = 16;
  options.disk_cache = false;
  const auto session = open_session(make_model(), options, fake.platform()).value();
  for (const std::int32_t token : {3, 77, 5}) ASSERT_TRUE(session->step(token));
  const KvSnapshot snapshot = session->snapshot(3).value();
  ASSERT_TRUE(session->step(9));
  const Floats expected(session->logits()->begin(), session->logits()->end());
  for (const char* call : {"cuMemcpyDtoHAsync", "cuStreamSynchronize"}) {
    fake.fail_call(call, 0, CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(session->snapshot(3).error().code, Code::driver);
    EXPECT_EQ(session->length(), 4);
  }
  for (const int at : {0, 2}) {
    ASSERT_TRUE(session->restore(snapshot));
    fake.fail_call("cuMemcpyHtoDAsync", at, CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(session->restore(snapshot).error().code, Code::driver);
    EXPECT_EQ(session->length(), 0);
  }
  ASSERT_TRUE(session->restore(snapshot));
  ASSERT_TRUE(session->step(9));
  EXPECT_EQ(Floats(session->logits()->begin(), session->logits()->end()), expected);
  EXPECT_EQ(fake.violations(), std::vector<std::string>{});
}

}  // namespace
}  // namespace lathe::testing
