// Holds the C++ wrapper to what it adds to the C interface: ownership, results and errors.
#include <type_traits>
#include <vector>

#include "tests/c_api/fixture.h"
#include "tests/plan/gguf_writer.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

static_assert(std::is_same_v<api::Session, api::v0::Session>);
static_assert(std::is_nothrow_move_constructible_v<api::Session> &&
              !std::is_copy_constructible_v<api::Session>);

TEST(Wrapper, DecodesAndMoves) {
  const GgufImage image = tiny_model(model_shape(1));
  auto model = api::Model::open(image.bytes, "tiny");
  ASSERT_TRUE(model) << model.error().text;
  EXPECT_EQ(model->info()->vocabulary, 160);
  auto options = api::sized<lathe_session_options>();
  options.executor = LATHE_EXECUTOR_CPU;
  options.threads = 1;
  options.context = 16;
  auto opened = api::Session::open(*model, options);
  ASSERT_TRUE(opened) << opened.error().text;
  api::Session session = *std::move(opened);
  EXPECT_EQ(opened->get(), nullptr);
  const api::Model moved = *std::move(model);
  EXPECT_EQ(moved.report(16)->kv_bytes, moved.report(16, LATHE_KV_F32)->kv_bytes);  // as a session

  const std::vector<std::int32_t> prompt = {3, 77};
  ASSERT_TRUE(session.feed(prompt));
  const auto first = session.sampled();
  ASSERT_TRUE(first);
  std::vector<std::int32_t> tokens(3);
  ASSERT_TRUE(session.generate(*first, tokens));
  EXPECT_EQ(*session.length(), 5);
  EXPECT_EQ(session.logits()->size(), 160u);
  EXPECT_STREQ(session.info()->executor, "cpu");
  ASSERT_TRUE(session.rollback(2));
  auto sampling = api::sized<lathe_sampling>();
  ASSERT_TRUE(session.set_sampling(sampling));
  ASSERT_TRUE(session.step(*first));
  EXPECT_EQ(*session.sampled(), tokens[0]);
  EXPECT_EQ(session.note(99).error().status, LATHE_INVALID_ARGUMENT);
}

TEST(Wrapper, HasTheServicesOfASession) {
  const GgufImage image = tiny_model(model_shape(1));
  const auto model = api::Model::open(image.bytes, "tiny");
  ASSERT_TRUE(model);
  auto options = api::sized<lathe_session_options>();
  options.executor = LATHE_EXECUTOR_CPU;
  options.threads = 1;
  options.context = 16;
  auto session = api::Session::open(*model, options);
  ASSERT_TRUE(session) << session.error().text;
  ASSERT_TRUE(session->feed(std::vector<std::int32_t>{3, 77}));

  std::vector<float> keys(2 * 128);
  const lathe_kv_range range = {LATHE_PART_KEYS, 0, 0, 2};
  ASSERT_TRUE(session->read_kv(range, keys));
  const auto capture = session->capture_kv(2, 3);
  ASSERT_TRUE(capture) << capture.error().text;
  EXPECT_EQ(capture->vectors, 3);
  EXPECT_EQ(capture->keys, std::vector(keys.begin(), keys.begin() + 3 * 64));
  EXPECT_EQ(capture->values.size(), capture->keys.size());
  ASSERT_TRUE(session->write_kv(range, keys));

  const std::vector<std::uint32_t> odd(5, 0xaaaaaaaau);
  const auto best = session->likeliest(4, odd);
  ASSERT_TRUE(best && best->size() == 4);
  EXPECT_EQ(*session->choose(odd), best->front().token);
  EXPECT_EQ(*session->likeliest_of(std::vector{best->at(2).token, best->at(1).token}),
            best->at(1).token);
  std::vector<float> logit(1);
  ASSERT_TRUE(session->read_logits(best->front().token, logit));
  EXPECT_EQ(logit[0], best->front().logit);

  const auto snapshot = session->snapshot(1);
  ASSERT_TRUE(snapshot);
  EXPECT_EQ(snapshot->info()->length, 1);
  ASSERT_TRUE(session->reset());
  EXPECT_EQ(*session->length(), 0);
  ASSERT_TRUE(session->restore(*snapshot));
  EXPECT_EQ(*session->length(), 1);
}

TEST(Wrapper, OpensABatchOrSaysWhyNot) {
  const GgufImage image = tiny_model(model_shape(1));
  const auto model = api::Model::open(image.bytes, "tiny");
  ASSERT_TRUE(model);
  auto session = api::sized<lathe_session_options>();
  session.executor = LATHE_EXECUTOR_CPU;
  auto options = api::sized<lathe_batch_options>();
  options.session = &session;
  const auto refused = api::Batch::open(*model, options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, LATHE_NOT_ELIGIBLE);
}

TEST(Wrapper, HasTheErrorOfTheCall) {
  const auto key = api::Key::parse("gemv.q4_k.k100.n1.w4");
  ASSERT_FALSE(key);
  EXPECT_EQ(key.error().status, LATHE_INVALID_ARGUMENT);
  EXPECT_NE(key.error().message.find("multiple"), std::string::npos);
  EXPECT_NE(key.error().text.find("gemv.q4_k.k100.n1.w4"), std::string::npos);
}

TEST(Wrapper, DescribesKeysAndPtx) {
  const auto key = api::Key::parse("gemv.q4_k.k4096.n14336.w4");
  const auto compilers = api::Compilers::open();
  ASSERT_TRUE(key && compilers);
  EXPECT_EQ(key->info()->parameter_count, 3);
  EXPECT_STREQ(key->parameter(1)->name, "x");
  EXPECT_EQ(key->parameter(3).error().status, LATHE_INVALID_ARGUMENT);
  EXPECT_EQ(*compilers->version(api::Route::text), "PTX templates");
  const auto ptx = compilers->emit(*key, "sm_80", api::Route::text);
  ASSERT_TRUE(ptx) << ptx.error().text;
  EXPECT_STREQ(ptx->info()->target, "sm_80");
}

}  // namespace
}  // namespace lathe::testing
