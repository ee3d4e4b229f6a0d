// Holds the C functions about keys and values, snapshots and allowed tokens to the library's own
// results, and to their contract for what is wrong.
#include <algorithm>
#include <limits>
#include <vector>

#include "runtime/c_api/objects.h"
#include "tests/c_api/fixture.h"
#include "tests/plan/gguf_writer.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

using Floats = std::vector<float>;
using Tokens = std::vector<std::int32_t>;
using Words = std::vector<std::uint32_t>;

constexpr std::int32_t kVocabulary = 160, kHeads = 2, kHeadDim = 64, kWidth = kHeads * kHeadDim;
constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

class ServiceFunctions : public ::testing::Test {
 protected:
  ServiceFunctions() {
    session_ = open(LATHE_KV_F16);
    EXPECT_EQ(lathe_session_feed(session_.get(), prompt_.data(), 3), LATHE_OK) << last_message();
    SessionOptions options;
    options.executor = ExecutorKind::cpu;
    options.plan.context = 16;
    options.plan.kv = Format::f16;
    options.threads = 1;
    direct_ = Session::open(make_model(1), options).value();
    EXPECT_TRUE(direct_->feed(prompt_));
  }
  SessionHandle open(std::int32_t kv_format, const lathe_kv_atoms* atoms = nullptr) {
    lathe_session_options options = on_cpu();
    options.kv_format = kv_format;
    options.atoms = atoms;
    lathe_session* session = nullptr;
    EXPECT_EQ(lathe_session_open(model_.get(), &options, &session), LATHE_OK) << last_message();
    return SessionHandle(session);
  }

  static lathe_session_options on_cpu() {
    auto options = api::sized<lathe_session_options>();
    options.executor = LATHE_EXECUTOR_CPU;
    options.context = 16;
    options.threads = 1;
    return options;
  }

  const GgufImage image_ = tiny_model(model_shape(1));
  const Tokens prompt_ = {3, 77, 5};
  Model model_ = model_of(image_);
  SessionHandle session_;
  std::unique_ptr<Session> direct_;
};

TEST_F(ServiceFunctions, ACacheOfAtomsIsTheLibrarys) {
  Floats values(96 * kHeadDim);
  for (std::size_t i = 0; i < 96; ++i) values[i * kHeadDim + i % kHeadDim] = i % 5 ? 1.0f : -1.0f;
  auto atoms = api::sized<lathe_kv_atoms>();
  atoms.count = 96;
  atoms.terms = 3;
  atoms.values = values.data();
  atoms.value_count = values.size();
  const SessionHandle session = open(LATHE_KV_F16, &atoms);
  ASSERT_EQ(lathe_session_feed(session.get(), prompt_.data(), 3), LATHE_OK) << last_message();
  SessionOptions options;
  options.executor = ExecutorKind::cpu;
  options.plan.context = 16;
  options.plan.atoms = {.count = 96, .terms = 3, .values = values};
  const auto direct = Session::open(make_model(1), options).value();
  ASSERT_TRUE(direct->feed(prompt_));
  const lathe_kv_range range = {LATHE_PART_KEYS, 0, 0, 3};
  Floats found(3 * kWidth, kPoison), expected(3 * kWidth);
  ASSERT_EQ(lathe_session_read_kv(session.get(), &range, found.data(), 3 * kWidth), LATHE_OK);
  ASSERT_TRUE(direct->read_kv({KvPart::keys, 0, 0, 3}, expected));
  EXPECT_EQ(found, expected);
  for (int vector = 0; vector < 3 * kHeads; ++vector)
    EXPECT_EQ(std::ranges::count(std::span(found).subspan(std::size_t(vector * kHeadDim), kHeadDim),
                                 0.0f),
              kHeadDim - 3);
  auto info = api::sized<lathe_session_info>();
  ASSERT_EQ(lathe_session_get_info(session.get(), &info), LATHE_OK);
  EXPECT_EQ(info.kv_bytes, 2 * 16 * kHeads * 3 * 4);

  lathe_session_options refused = on_cpu();
  refused.atoms = &atoms;
  const auto expect_refused = [&](const char* words) {
    lathe_session* opened = nullptr;
    EXPECT_REFUSED(lathe_session_open(model_.get(), &refused, &opened), LATHE_INVALID_ARGUMENT,
                   words);
  };
  // A count that is wrong is refused before any value is read: there is none at this address.
  atoms.values = reinterpret_cast<const float*>(std::uintptr_t{64});
  for (const std::size_t wrong : {values.size() - 1, values.size() + 1, 3 * values.size(),
                                  std::size_t{1} << 50, std::numeric_limits<std::size_t>::max()}) {
    atoms.value_count = wrong;
    expect_refused(
        "values were given; 96 atoms of 64 are 6144, and those of the keys and of the "
        "values of 1 layers 12288");
  }
  atoms.value_count = values.size();
  auto part = api::sized<lathe_model_part>();
  part.layers = 2;
  refused.part = &part;
  expect_refused("2 layers from 0 on, and the model has 1");
  refused.part = nullptr;
  atoms.count = 65537;
  expect_refused("65537");
  atoms.count = 96;
  atoms.values = nullptr;
  expect_refused("The values of atoms are null");
  atoms.value_count = 0;
  atoms.terms = 65;
  expect_refused("terms is 65");
  atoms.terms = 0;  // 8
  const SessionHandle own = open(LATHE_KV_F32, &atoms);
  ASSERT_EQ(lathe_session_get_info(own.get(), &info), LATHE_OK);
  EXPECT_EQ(info.kv_bytes, 2 * 16 * kHeads * 8 * 4);
  atoms.count = 0;
  expect_refused("0 atoms");
  atoms.struct_size = 0;
  expect_refused("lathe_kv_atoms");
}

TEST_F(ServiceFunctions, ReadAndWriteKeysAndValues) {
  auto info = api::sized<lathe_session_info>();
  ASSERT_EQ(lathe_session_get_info(session_.get(), &info), LATHE_OK);
  EXPECT_EQ(info.layers, 1);
  EXPECT_EQ(info.kv_heads, kHeads);
  EXPECT_EQ(info.head_dim, kHeadDim);
  lathe_kv_range range = {LATHE_PART_VALUES, 0, 1, 2};
  Floats found(2 * kWidth, kPoison), expected(2 * kWidth);
  ASSERT_EQ(lathe_session_read_kv(session_.get(), &range, found.data(), 2 * kWidth), LATHE_OK)
      << last_message();
  ASSERT_TRUE(direct_->read_kv({KvPart::values, 0, 1, 2}, expected));
  EXPECT_EQ(found, expected);
  std::ranges::reverse(found);
  ASSERT_EQ(lathe_session_write_kv(session_.get(), &range, found.data(), 2 * kWidth), LATHE_OK);
  Floats again(2 * kWidth, kPoison);
  ASSERT_EQ(lathe_session_read_kv(session_.get(), &range, again.data(), 2 * kWidth), LATHE_OK);
  EXPECT_EQ(again, found);

  const auto refused = [&](lathe_kv_range wrong, float* values, std::int64_t count,
                           lathe_status status, const char* words) {
    EXPECT_REFUSED(lathe_session_read_kv(session_.get(), &wrong, values, count), status, words);
    EXPECT_REFUSED(lathe_session_write_kv(session_.get(), &wrong, values, count), status, words);
  };
  refused({2, 0, 0, 1}, again.data(), kWidth, LATHE_INVALID_ARGUMENT, "part number 2");
  refused({0, 1, 0, 1}, again.data(), kWidth, LATHE_OUT_OF_RANGE, "no layer 1");
  refused({0, 0, 2, 2}, again.data(), 2 * kWidth, LATHE_OUT_OF_RANGE, "there are 3");
  refused({0, 0, 0, 1}, again.data(), 7, LATHE_INVALID_ARGUMENT, "not 7");
  refused({0, 0, 0, 1}, again.data(), -1, LATHE_INVALID_ARGUMENT, "-1");
  refused({0, 0, 0, 1}, nullptr, kWidth, LATHE_INVALID_ARGUMENT, "values");
  EXPECT_REFUSED(lathe_session_read_kv(session_.get(), nullptr, again.data(), 1),
                 LATHE_INVALID_ARGUMENT, "range");
}

TEST_F(ServiceFunctions, CaptureIntoTheCallersMemory) {
  std::int32_t vectors = -1;
  ASSERT_EQ(lathe_session_capture_kv(session_.get(), 3, 5, nullptr, nullptr, 0, &vectors), LATHE_OK)
      << last_message();
  ASSERT_EQ(vectors, 5);
  Floats keys(5 * kHeadDim, kPoison), values(5 * kHeadDim, kPoison);
  ASSERT_EQ(lathe_session_capture_kv(session_.get(), 3, 5, keys.data(), values.data(), 5 * kHeadDim,
                                     &vectors),
            LATHE_OK);
  const KvCapture expected = direct_->capture_kv(3, 5).value();
  EXPECT_EQ(keys, expected.keys);
  EXPECT_EQ(values, expected.values);
  EXPECT_REFUSED(
      lathe_session_capture_kv(session_.get(), 3, 5, keys.data(), values.data(), 7, &vectors),
      LATHE_INVALID_ARGUMENT, "room for 7");
  EXPECT_REFUSED(lathe_session_capture_kv(session_.get(), 3, 5, keys.data(), nullptr, 7, &vectors),
                 LATHE_INVALID_ARGUMENT, "values");
  EXPECT_REFUSED(lathe_session_capture_kv(session_.get(), 4, 5, nullptr, nullptr, 0, &vectors),
                 LATHE_OUT_OF_RANGE, "4 were asked for");
  EXPECT_REFUSED(lathe_session_capture_kv(session_.get(), 3, -1, nullptr, nullptr, 0, &vectors),
                 LATHE_INVALID_ARGUMENT, "-1 vectors");
  constexpr auto kAll = std::numeric_limits<std::int32_t>::max();
  ASSERT_EQ(lathe_session_capture_kv(session_.get(), 3, kAll, nullptr, nullptr, 0, &vectors),
            LATHE_OK);
  EXPECT_EQ(vectors, 3 * kHeads);
}

TEST_F(ServiceFunctions, ReturnToASnapshot) {
  lathe_snapshot* snapshot = nullptr;
  ASSERT_EQ(lathe_session_snapshot(session_.get(), 2, &snapshot), LATHE_OK) << last_message();
  ASSERT_EQ(lathe_session_rollback(session_.get(), 2), LATHE_OK);
  Tokens expected(5), found(5);
  ASSERT_EQ(lathe_session_generate(session_.get(), 40, expected.data(), 5), LATHE_OK);
  session_.reset();  // it outlives where it came from
  auto info = api::sized<lathe_snapshot_info>();
  ASSERT_EQ(lathe_snapshot_get_info(snapshot, &info), LATHE_OK);
  EXPECT_EQ(Tokens(info.tokens, info.tokens + info.length), Tokens({3, 77}));
  EXPECT_EQ(info.kv_format, LATHE_KV_F16);
  EXPECT_EQ(info.bytes, 2 * 2 * 2 * kWidth);

  const SessionHandle other = open(LATHE_KV_F16), f32 = open(LATHE_KV_F32);
  ASSERT_EQ(lathe_session_step(other.get(), 9), LATHE_OK);
  ASSERT_EQ(lathe_session_restore(other.get(), snapshot), LATHE_OK) << last_message();
  ASSERT_EQ(lathe_session_generate(other.get(), 40, found.data(), 5), LATHE_OK);
  EXPECT_EQ(found, expected);
  EXPECT_REFUSED(lathe_session_restore(f32.get(), snapshot), LATHE_INVALID_ARGUMENT,
                 "KV cache in f16, this one is in f32");
  ASSERT_EQ(lathe_session_reset(other.get()), LATHE_OK);
  std::int32_t length = -1, token = 0;
  ASSERT_EQ(lathe_session_get_length(other.get(), &length), LATHE_OK);
  EXPECT_EQ(length, 0);
  EXPECT_REFUSED(lathe_session_get_sampled(other.get(), &token), LATHE_INVALID_ARGUMENT,
                 "next step");
  EXPECT_REFUSED(lathe_session_snapshot(other.get(), 1, &snapshot), LATHE_OUT_OF_RANGE, "1 were");
  EXPECT_REFUSED(lathe_session_snapshot(other.get(), 0, nullptr), LATHE_INVALID_ARGUMENT,
                 "snapshot");
  ASSERT_EQ(lathe_snapshot_close(snapshot), LATHE_OK);
  EXPECT_REFUSED(lathe_session_restore(other.get(), snapshot), LATHE_INVALID_ARGUMENT,
                 "snapshot is closed");
  EXPECT_REFUSED(lathe_snapshot_close(snapshot), LATHE_INVALID_ARGUMENT, "snapshot is closed");
}

TEST_F(ServiceFunctions, TellLogitsAndTheLikeliest) {
  const std::span<const float> logits = direct_->logits().value();
  Floats piece(10, kPoison);
  ASSERT_EQ(lathe_session_read_logits(session_.get(), 30, piece.data(), 10), LATHE_OK);
  EXPECT_TRUE(std::equal(piece.begin(), piece.end(), logits.begin() + 30));
  EXPECT_REFUSED(lathe_session_read_logits(session_.get(), 155, piece.data(), 10),
                 LATHE_OUT_OF_RANGE, "155");
  const Words odd(token_set_words(kVocabulary), 0xaaaaaaaau), none(odd.size());
  std::vector<lathe_scored_token> tokens(64);
  std::int32_t count = -1;
  for (const Words& allowed : {Words{}, odd, none}) {
    ASSERT_EQ(lathe_session_get_likeliest(session_.get(), allowed.data(),
                                          std::int32_t(allowed.size()), 8, tokens.data(), &count),
              LATHE_OK)
        << last_message();
    const auto expected = likeliest_tokens(logits, 8, allowed).value();
    ASSERT_EQ(std::size_t(count), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(tokens[i].token, expected[i].id);
      EXPECT_EQ(tokens[i].logit, expected[i].logit);
    }
  }
  EXPECT_REFUSED(lathe_session_get_likeliest(session_.get(), nullptr, 0, 65, tokens.data(), &count),
                 LATHE_INVALID_ARGUMENT, "65 tokens");
  EXPECT_REFUSED(
      lathe_session_get_likeliest(session_.get(), odd.data(), 1, 1, tokens.data(), &count),
      LATHE_INVALID_ARGUMENT, "1 words");
  const Tokens list = {9, 2, 33};
  std::int32_t token = -2;
  ASSERT_EQ(lathe_session_get_likeliest_of(session_.get(), list.data(), 3, &token), LATHE_OK);
  EXPECT_EQ(token, likeliest_of(logits, list).value());
  ASSERT_EQ(lathe_session_get_likeliest_of(session_.get(), nullptr, 0, &token), LATHE_OK);
  EXPECT_EQ(token, -1);
  const std::int32_t wrong = kVocabulary;
  EXPECT_REFUSED(lathe_session_get_likeliest_of(session_.get(), &wrong, 1, &token),
                 LATHE_OUT_OF_RANGE, "Token 160");
}

TEST_F(ServiceFunctions, ChooseAmongTheAllowed) {
  const Words odd(token_set_words(kVocabulary), 0xaaaaaaaau), none(odd.size());
  const auto words = std::int32_t(odd.size());
  std::int32_t token = -2;
  ASSERT_EQ(lathe_session_choose(session_.get(), odd.data(), words, &token), LATHE_OK);
  EXPECT_EQ(token, direct_->choose(odd).value());
  ASSERT_EQ(lathe_session_choose(session_.get(), nullptr, 0, &token), LATHE_OK);
  EXPECT_EQ(token, direct_->sampled().value());
  ASSERT_EQ(lathe_session_choose(session_.get(), none.data(), words, &token), LATHE_OK);
  EXPECT_EQ(token, -1);
  EXPECT_REFUSED(lathe_session_choose(session_.get(), nullptr, words, &token),
                 LATHE_INVALID_ARGUMENT, "allowed");

  // Odd tokens, until the fourth has nothing to be.
  auto run = api::sized<lathe_run_options>();
  run.constraint = [](void* user, const std::int32_t* chosen, std::int32_t count,
                      std::uint32_t* allowed, std::int32_t of) {
    if (count > 0) static_cast<Tokens*>(user)->push_back(chosen[count - 1]);
    if (count < 3) std::fill_n(allowed, of, 0xaaaaaaaau);
  };
  Tokens seen, tokens(9, -7);
  run.constraint_user = &seen;
  std::int32_t count = 0;
  ASSERT_EQ(lathe_session_generate_until(session_.get(), token = 4, &run, tokens.data(), 9, &count),
            LATHE_OK)
      << last_message();
  ASSERT_EQ(count, 4);
  EXPECT_EQ(seen, Tokens(tokens.begin(), tokens.begin() + 3));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(tokens[std::size_t(i)] % 2, 1);
  EXPECT_EQ(tokens[3], -1);
  EXPECT_EQ(tokens[4], -7);
}

}  // namespace
}  // namespace lathe::testing
