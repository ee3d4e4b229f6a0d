// Holds models and sessions of the C interface to their contract: on the CPU, and on the fake
// driver, which must agree to the last bit.
#include <cstdlib>
#include <vector>

#include "runtime/c_api/objects.h"
#include "runtime/device_impl.h"
#include "tests/c_api/fixture.h"
#include "tests/plan/gguf_writer.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/scratch_directory.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

class SessionFunctions : public ::testing::Test {
 protected:
  SessionFunctions() {
    options_.executor = LATHE_EXECUTOR_CPU;
    options_.context = 16;
    options_.threads = 1;
  }
  lathe_status open(const lathe_session_options* options, SessionHandle& session) {
    lathe_session* opened = nullptr;
    const lathe_status status = lathe_session_open(model_.get(), options, &opened);
    session.reset(opened);
    return status;
  }
  SessionHandle open_or_fail() {
    SessionHandle session;
    EXPECT_EQ(open(&options_, session), LATHE_OK) << last_message();
    return session;
  }

  GgufImage image_ = tiny_model(model_shape(1));
  Model model_ = model_of(image_);
  lathe_session_options options_ = api::sized<lathe_session_options>();
};

std::vector<float> logits_of(const SessionHandle& session) {
  const float* logits = nullptr;
  std::int32_t count = 0;
  EXPECT_EQ(lathe_session_get_logits(session.get(), &logits, &count), LATHE_OK) << last_message();
  return {logits, logits + count};
}

std::int32_t length_of(const SessionHandle& session) {
  std::int32_t length = -1;
  EXPECT_EQ(lathe_session_get_length(session.get(), &length), LATHE_OK);
  return length;
}

lathe_model_report model_report(const lathe_model* model, std::int32_t context) {
  auto report = api::sized<lathe_model_report>();
  EXPECT_EQ(lathe_model_get_report(model, context, LATHE_KV_F16, &report), LATHE_OK)
      << last_message();
  return report;
}

TEST_F(SessionFunctions, DescribeTheModel) {
  auto info = api::sized<lathe_model_info>();
  ASSERT_EQ(lathe_model_get_info(model_.get(), &info), LATHE_OK) << last_message();
  EXPECT_STREQ(info.architecture, "llama");
  EXPECT_STREQ(info.path, "tiny");
  EXPECT_EQ(info.layers, 1);
  EXPECT_EQ(info.vocabulary, 160);
  EXPECT_EQ(info.context, 4096);
}

TEST_F(SessionFunctions, ReportWhatIsInAFile) {
  const auto report = model_report(model_.get(), 100);
  EXPECT_STREQ(report.container, "GGUF");
  EXPECT_EQ(report.version, 3);
  EXPECT_EQ(report.decodes, 1);
  EXPECT_EQ(report.file_bytes, std::ssize(image_.bytes));
  EXPECT_STREQ(report.largest_tensor, "blk.0.ffn_down.weight");  // q6_k
  EXPECT_EQ(report.context, 100);
  EXPECT_EQ(report.kv_bytes, 100 * 2 * (2 * 64) * 2);  // positions, K and V, two heads, f16
  auto refused = api::sized<lathe_model_report>();
  EXPECT_REFUSED(lathe_model_get_report(model_.get(), 5000, LATHE_KV_F16, &refused),
                 LATHE_INVALID_ARGUMENT, "5000");
  EXPECT_REFUSED(lathe_model_get_report(model_.get(), 0, 9, &refused), LATHE_INVALID_ARGUMENT,
                 "KV format number 9");
  EXPECT_REFUSED(lathe_model_get_report(model_.get(), 0, 0, nullptr), LATHE_INVALID_ARGUMENT,
                 "lathe_model_report");
}

TEST_F(SessionFunctions, ConvertAModelAndOpenItAgain) {
  const ScratchDirectory directory;
  const std::string path = directory.path() + "/model.p64";
  ASSERT_EQ(lathe_model_convert(model_.get(), path.c_str(), nullptr, nullptr), LATHE_OK)
      << last_message();
  auto options = api::sized<lathe_model_options>();
  options.integrity = LATHE_INTEGRITY_FULL;
  lathe_model* opened = nullptr;
  ASSERT_EQ(lathe_model_open_with(path.c_str(), &options, &opened), LATHE_OK) << last_message();
  const Model model(opened);
  const auto report = model_report(opened, 100);
  EXPECT_STREQ(report.container, "P64");
  EXPECT_EQ(report.data_offset, 0);
  EXPECT_EQ(report.kv_bytes, model_report(model_.get(), 100).kv_bytes);
  options.integrity = 3;
  lathe_model* none = nullptr;
  EXPECT_REFUSED(lathe_model_open_with(path.c_str(), &options, &none), LATHE_INVALID_ARGUMENT,
                 "integrity number 3");
  EXPECT_REFUSED(lathe_model_convert(opened, path.c_str(), nullptr, nullptr),
                 LATHE_INVALID_ARGUMENT, "is to be converted");
  EXPECT_REFUSED(lathe_model_convert(opened, nullptr, nullptr, nullptr), LATHE_INVALID_ARGUMENT,
                 "path");
}

TEST_F(SessionFunctions, RefuseWhatIsNoModel) {
  lathe_model* model = nullptr;
  EXPECT_REFUSED(lathe_model_open("/nowhere/model.gguf", &model), LATHE_NOT_FOUND, "/nowhere");
  const char text[] = "this is no GGUF file, whatever it is";
  EXPECT_REFUSED(lathe_model_open_bytes(text, sizeof text, "letter", &model), LATHE_CORRUPT_FILE,
                 "not a GGUF file");
  EXPECT_REFUSED(lathe_model_open(nullptr, &model), LATHE_INVALID_ARGUMENT, "path");
  EXPECT_REFUSED(lathe_model_open_bytes(nullptr, 1, "x", &model), LATHE_INVALID_ARGUMENT, "bytes");
  EXPECT_EQ(model, nullptr);
}

TEST_F(SessionFunctions, DecodeAsTheLibraryDoes) {
  SessionHandle session = open_or_fail();
  model_.reset();  // the session keeps what it needs
  const std::int32_t prompt[] = {3, 77, 5};
  ASSERT_EQ(lathe_session_feed(session.get(), prompt, 3), LATHE_OK) << last_message();
  std::int32_t first = -2;
  ASSERT_EQ(lathe_session_get_sampled(session.get(), &first), LATHE_OK);
  std::vector<std::int32_t> tokens(4);
  ASSERT_EQ(lathe_session_generate(session.get(), first, tokens.data(), 4), LATHE_OK);
  EXPECT_EQ(length_of(session), 7);

  SessionOptions same;
  same.executor = ExecutorKind::cpu;
  same.plan.context = 16;
  same.threads = 1;
  const auto direct = Session::open(make_model(1), same).value();
  for (const std::int32_t token : prompt) ASSERT_TRUE(direct->step(token));
  EXPECT_EQ(direct->sampled().value(), first);
  std::vector<std::int32_t> expected(4);
  ASSERT_TRUE(direct->generate(first, expected));
  EXPECT_EQ(tokens, expected);
  const std::vector<float> logits = logits_of(session);
  const auto direct_logits = direct->logits().value();
  EXPECT_TRUE(std::equal(logits.begin(), logits.end(), direct_logits.begin(), direct_logits.end()));
}

TEST_F(SessionFunctions, ARunEndsAtAStopToken) {
  SessionHandle session = open_or_fail();
  std::vector<std::int32_t> all(6), some(6), told;
  ASSERT_EQ(lathe_session_generate(session.get(), 3, all.data(), 6), LATHE_OK);
  session = open_or_fail();
  const std::int32_t stops[] = {all[2]};
  lathe_run_options run = {};
  run.struct_size = sizeof run;
  run.stops = stops;
  run.stop_count = 1;
  run.listener = [](void* user, std::int32_t id) {
    static_cast<std::vector<std::int32_t>*>(user)->push_back(id);
  };
  run.listener_user = &told;
  std::int32_t chosen = 0;
  ASSERT_EQ(lathe_session_generate_until(session.get(), 3, &run, some.data(), 6, &chosen), LATHE_OK)
      << last_message();
  const auto expected = std::find(all.begin(), all.end(), all[2]) - all.begin() + 1;
  EXPECT_EQ(chosen, expected);
  EXPECT_EQ(told, std::vector(all.begin(), all.begin() + expected));
  EXPECT_EQ(length_of(session), expected);

  EXPECT_REFUSED(lathe_session_generate_until(session.get(), 3, nullptr, some.data(), 6, nullptr),
                 LATHE_INVALID_ARGUMENT, "chosen");
  run.stop_count = -1;
  EXPECT_REFUSED(lathe_session_generate_until(session.get(), 3, &run, some.data(), 6, &chosen),
                 LATHE_INVALID_ARGUMENT, "stops");
  ASSERT_EQ(lathe_session_generate_until(session.get(), 3, nullptr, some.data(), 2, &chosen),
            LATHE_OK);
  EXPECT_EQ(chosen, 2);
}

// Says yes when it is asked for the n-th time.
struct CancelAt {
  int asked = 0, yes;
  lathe_run_options options() {
    auto run = api::sized<lathe_run_options>();
    run.cancel = [](void* user) {
      auto& self = *static_cast<CancelAt*>(user);
      return std::int32_t(++self.asked >= self.yes);
    };
    run.cancel_user = this;
    return run;
  }
};

TEST_F(SessionFunctions, ARunCanBeCancelled) {
  options_.context = 64;
  std::vector<std::int32_t> all(20), some(20);
  SessionHandle session = open_or_fail();
  ASSERT_EQ(lathe_session_generate(session.get(), 3, all.data(), 20), LATHE_OK);
  struct Expected {
    int yes, tokens;
  };
  for (const Expected& expected : {Expected{1, 0}, {2, 8}, {3, 16}, {99, 20}}) {
    session = open_or_fail();
    CancelAt cancel{.yes = expected.yes};
    const lathe_run_options run = cancel.options();
    std::int32_t chosen = -1;
    ASSERT_EQ(lathe_session_generate_until(session.get(), 3, &run, some.data(), 20, &chosen),
              LATHE_OK)
        << last_message();
    EXPECT_EQ(chosen, expected.tokens);
    EXPECT_TRUE(std::equal(all.begin(), all.begin() + chosen, some.begin()));
    EXPECT_EQ(length_of(session), chosen);
  }
  // What does not fit as a whole is refused before the first token.
  CancelAt never{.yes = 99};
  const lathe_run_options run = never.options();
  std::vector<std::int32_t> many(64);
  std::int32_t chosen = -1;
  EXPECT_REFUSED(lathe_session_generate_until(session.get(), 3, &run, many.data(), 64, &chosen),
                 LATHE_OUT_OF_RANGE, "no room");
  EXPECT_EQ(length_of(session), 20);
  EXPECT_EQ(never.asked, 0);
}

TEST_F(SessionFunctions, RunOnTheCallersDeviceAndStream) {
  options_.fusion = LATHE_FUSION_FULL;
  const SessionHandle cpu = open_or_fail();
  FakeDriver fake;
  const CUstream stream = fake.make_stream();
  {
    DeviceOptions on_fake;
    on_fake.disk_cache = false;
    DeviceHandle device(
        c_api::open_device_handle(DeviceImpl::open(on_fake, fake.platform()).value()).value());
    options_.executor = LATHE_EXECUTOR_DEFAULT;
    options_.device = device.get();
    options_.stream = stream;
    const SessionHandle gpu = open_or_fail();
    options_.executor = LATHE_EXECUTOR_AUTO;
    const SessionHandle automatic = open_or_fail();
    device.reset();
    auto info = api::sized<lathe_session_info>();
    ASSERT_EQ(lathe_session_get_info(gpu.get(), &info), LATHE_OK);
    EXPECT_STREQ(info.executor, "graph");
    EXPECT_EQ(info.context, 16);
    EXPECT_EQ(info.vocabulary, 160);
    EXPECT_GT(info.launches, 5);
    EXPECT_EQ(info.note_count, 0);
    ASSERT_EQ(lathe_session_get_info(automatic.get(), &info), LATHE_OK);
    EXPECT_STREQ(info.executor, "mega");
    EXPECT_GT(info.build_wait_seconds, 0);
    EXPECT_LE(info.build_wait_seconds, info.build_seconds);
    auto choice = api::sized<lathe_choice>();
    ASSERT_GT(info.choice_count, 3);
    ASSERT_EQ(lathe_session_get_choice(automatic.get(), 0, &choice), LATHE_OK);
    EXPECT_STREQ(choice.what, "executor");
    EXPECT_STREQ(choice.value, "mega");
    EXPECT_EQ(choice.set, 0);
    EXPECT_REFUSED(lathe_session_get_choice(automatic.get(), info.choice_count, &choice),
                   LATHE_INVALID_ARGUMENT, "choice");
    fake.reset_counts();
    const std::int32_t prompt[] = {3, 77, 5};
    for (const SessionHandle* session : {&cpu, &gpu})
      ASSERT_EQ(lathe_session_feed(session->get(), prompt, 3), LATHE_OK) << last_message();
    EXPECT_EQ(fake.calls("cuStreamSynchronize"), 0);
    EXPECT_EQ(logits_of(cpu), logits_of(gpu));

    fake.begin_capture(stream);
    EXPECT_REFUSED(lathe_session_step(gpu.get(), 1), LATHE_INVALID_ARGUMENT, "captured");
    // One step is recorded, and replayed twice.
    ASSERT_EQ(lathe_session_record_step(gpu.get()), LATHE_OK) << last_message();
    const FakeRecording recording = fake.end_capture(stream);
    EXPECT_REFUSED(lathe_session_record_step(gpu.get()), LATHE_INVALID_ARGUMENT, "not being");
    std::int32_t expected[2] = {}, found[2] = {};
    ASSERT_EQ(lathe_session_generate(cpu.get(), 7, expected, 2), LATHE_OK);
    ASSERT_EQ(lathe_session_begin_replays(gpu.get(), 7), LATHE_OK) << last_message();
    fake.replay(recording, stream);
    EXPECT_REFUSED(lathe_session_take_replays(gpu.get(), found, 2), LATHE_INVALID_ARGUMENT, "1");
    fake.replay(recording, stream);
    EXPECT_REFUSED(lathe_session_take_replays(gpu.get(), nullptr, 2), LATHE_INVALID_ARGUMENT,
                   "tokens");
    ASSERT_EQ(lathe_session_take_replays(gpu.get(), found, 2), LATHE_OK) << last_message();
    EXPECT_EQ(std::vector(found, found + 2), std::vector(expected, expected + 2));
    EXPECT_EQ(length_of(gpu), 5);
    EXPECT_EQ(logits_of(cpu), logits_of(gpu));
    EXPECT_REFUSED(lathe_session_record_step(cpu.get()), LATHE_NOT_ELIGIBLE, "cpu");
    // A device that is closed cannot be given to another session.
    SessionHandle another;
    EXPECT_REFUSED(open(&options_, another), LATHE_INVALID_ARGUMENT, "device is closed");
  }
  EXPECT_EQ(fake.leaks(), "1 streams, ");
  EXPECT_EQ(fake.violations(), std::vector<std::string>{});
}

TEST_F(SessionFunctions, ChecksThePromptBeforeItDecodes) {
  const SessionHandle session = open_or_fail();
  const std::int32_t wrong[] = {3, 160};
  EXPECT_REFUSED(lathe_session_feed(session.get(), wrong, 2), LATHE_OUT_OF_RANGE, "160");
  const std::vector<std::int32_t> long_prompt(17, 3);
  EXPECT_REFUSED(lathe_session_feed(session.get(), long_prompt.data(), 17), LATHE_OUT_OF_RANGE,
                 "context of 16");
  EXPECT_REFUSED(lathe_session_step(session.get(), -1), LATHE_OUT_OF_RANGE, "-1");
  EXPECT_REFUSED(lathe_session_feed(session.get(), nullptr, 2), LATHE_INVALID_ARGUMENT, "tokens");
  EXPECT_REFUSED(lathe_session_feed(session.get(), wrong, -2), LATHE_INVALID_ARGUMENT, "-2");
  EXPECT_EQ(length_of(session), 0);
  std::int32_t token = 0;
  EXPECT_REFUSED(lathe_session_get_sampled(session.get(), &token), LATHE_INVALID_ARGUMENT,
                 "next step");
  EXPECT_EQ(lathe_session_feed(session.get(), nullptr, 0), LATHE_OK);
}

TEST_F(SessionFunctions, RollBack) {
  const SessionHandle session = open_or_fail();
  const std::int32_t prompt[] = {3, 77, 5};
  ASSERT_EQ(lathe_session_feed(session.get(), prompt, 3), LATHE_OK);
  const std::vector<float> before = logits_of(session);
  ASSERT_EQ(lathe_session_rollback(session.get(), 0), LATHE_OK);
  EXPECT_EQ(length_of(session), 0);
  ASSERT_EQ(lathe_session_feed(session.get(), prompt, 3), LATHE_OK);
  EXPECT_EQ(logits_of(session), before);
  EXPECT_REFUSED(lathe_session_rollback(session.get(), 4), LATHE_OUT_OF_RANGE, "4");
}

TEST_F(SessionFunctions, SampleByTheRulesGiven) {
  const SessionHandle session = open_or_fail();
  const auto drawn = [&](std::uint64_t seed) {
    const lathe_sampling sampling = {.struct_size = sizeof sampling,
                                     .temperature = 20,
                                     .top_k = 0,
                                     .top_p = 0,
                                     .min_p = 0,
                                     .repeat_penalty = 0,
                                     .repeat_last = 0,
                                     .seed = seed};
    EXPECT_EQ(lathe_session_set_sampling(session.get(), &sampling), LATHE_OK) << last_message();
    EXPECT_EQ(lathe_session_rollback(session.get(), 0), LATHE_OK);
    std::vector<std::int32_t> tokens(12);
    EXPECT_EQ(lathe_session_generate(session.get(), 3, tokens.data(), 12), LATHE_OK);
    return tokens;
  };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1), drawn(2));
  ASSERT_EQ(lathe_session_set_sampling(session.get(), nullptr), LATHE_OK);
  auto wrong = api::sized<lathe_sampling>();
  wrong.temperature = -1;
  EXPECT_REFUSED(lathe_session_set_sampling(session.get(), &wrong), LATHE_INVALID_ARGUMENT,
                 "temperature");
}

TEST_F(SessionFunctions, RefuseWrongOptions) {
  SessionHandle session;
  const auto refused = [&](auto change, const char* words) {
    lathe_session_options options = options_;
    change(options);
    EXPECT_REFUSED(open(&options, session), LATHE_INVALID_ARGUMENT, words);
  };
  refused([](auto& o) { o.executor = 6; }, "executor number 6");
  refused([](auto& o) { o.fusion = -1; }, "fusion number -1");
  refused([](auto& o) { o.kv_format = 3; }, "KV format number 3");
  refused([](auto& o) { o.threads = -1; }, "threads");
  refused([](auto& o) { o.wait_limit_ms = -2; }, "wait limit of -2 ms");
  refused([](auto& o) { o.struct_size = 0; }, "lathe_session_options");
  EXPECT_REFUSED(lathe_session_open(model_.get(), &options_, nullptr), LATHE_INVALID_ARGUMENT,
                 "session");
  lathe_session* opened = nullptr;
  EXPECT_REFUSED(lathe_session_open(nullptr, &options_, &opened), LATHE_INVALID_ARGUMENT, "model");
}

TEST_F(SessionFunctions, RefuseAClosedSession) {
  SessionHandle session = open_or_fail();
  lathe_session* closed = session.get();
  session.reset();
  EXPECT_REFUSED(lathe_session_step(closed, 1), LATHE_INVALID_ARGUMENT, "session is closed");
  std::int32_t number = 0;
  const float* logits = nullptr;
  EXPECT_REFUSED(lathe_session_get_logits(closed, &logits, &number), LATHE_INVALID_ARGUMENT,
                 "session is closed");
  EXPECT_REFUSED(lathe_session_get_length(nullptr, &number), LATHE_INVALID_ARGUMENT,
                 "session is a null");
}

}  // namespace
}  // namespace lathe::testing
