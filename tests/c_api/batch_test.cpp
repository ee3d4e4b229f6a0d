// Holds batches of the C interface to their contract, on the fake driver, whose kernels are the
// oracles.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "runtime/c_api/objects.h"
#include "runtime/device_impl.h"
#include "tests/c_api/fixture.h"
#include "tests/plan/gguf_writer.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

using BatchHandle = std::unique_ptr<lathe_batch, Close<lathe_batch_close>>;
using Tokens = std::vector<std::int32_t>;

class BatchFunctions : public ::testing::Test {
 protected:
  BatchFunctions() {
    DeviceOptions on_fake;
    on_fake.disk_cache = false;
    kernels_ = DeviceImpl::open(on_fake, fake_.platform()).value();
    device_.reset(c_api::open_device_handle(kernels_).value());
    session_.device = device_.get();
    session_.context = 48;
    session_.kv_format = LATHE_KV_F16;
    options_.session = &session_;
    options_.sequences = 2;
    options_.rows = 4;
  }
  ~BatchFunctions() override { EXPECT_EQ(fake_.violations(), std::vector<std::string>{}); }

  lathe_status open(const lathe_batch_options& options, BatchHandle& batch) {
    lathe_batch* opened = nullptr;
    const lathe_status status = lathe_batch_open(model_.get(), &options, &opened);
    batch.reset(opened);
    return status;
  }
  BatchHandle open_or_fail() {
    BatchHandle batch;
    EXPECT_EQ(open(options_, batch), LATHE_OK) << last_message();
    return batch;
  }
  static std::int32_t join(const BatchHandle& batch, const lathe_sampling* sampling = nullptr) {
    std::int32_t sequence = -1;
    EXPECT_EQ(lathe_batch_join(batch.get(), sampling, &sequence), LATHE_OK) << last_message();
    return sequence;
  }
  // By steps of one row.
  static Tokens generate(const BatchHandle& batch, std::int32_t sequence, std::int32_t token,
                         int count) {
    Tokens tokens;
    for (int i = 0; i < count; ++i) {
      const lathe_batch_row row = {sequence, token};
      EXPECT_EQ(lathe_batch_step(batch.get(), &row, 1, &token), LATHE_OK) << last_message();
      tokens.push_back(token);
    }
    return tokens;
  }
  static std::int32_t length(const BatchHandle& batch, std::int32_t sequence) {
    std::int32_t length = -1;
    EXPECT_EQ(lathe_batch_get_length(batch.get(), sequence, &length), LATHE_OK) << last_message();
    return length;
  }

  FakeDriver fake_;
  const GgufImage image_ = tiny_model(model_shape(1));
  std::shared_ptr<Device> kernels_;
  DeviceHandle device_;
  Model model_ = model_of(image_);
  lathe_session_options session_ = api::sized<lathe_session_options>();
  lathe_batch_options options_ = api::sized<lathe_batch_options>();
};

TEST_F(BatchFunctions, DecodeAsTheLibraryDoes) {
  const BatchHandle batch = open_or_fail();
  auto sampling = api::sized<lathe_sampling>();
  sampling.temperature = 1;
  sampling.seed = 7;
  const std::int32_t a = join(batch), b = join(batch, &sampling);
  const Tokens prompt = {3, 77, 5};
  ASSERT_EQ(lathe_batch_feed(batch.get(), a, prompt.data(), 3), LATHE_OK) << last_message();
  ASSERT_EQ(lathe_batch_copy(batch.get(), a, b, 2), LATHE_OK) << last_message();

  BatchOptions same;
  same.session.kernels = kernels_;
  same.session.plan.context = 48;
  same.session.plan.kv = Format::f16;
  same.sequences = 2;
  same.rows = 4;
  const auto other = Batch::open(make_model(1), same).value();
  ASSERT_EQ(other->join().value(), a);
  ASSERT_EQ(other->join({.temperature = 1, .seed = 7}).value(), b);
  ASSERT_TRUE(other->feed(a, prompt) && other->copy(a, b, 2));

  lathe_batch_row rows[] = {{a, 9}, {b, 9}};
  Tokens chosen(2);
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(lathe_batch_step(batch.get(), rows, 2, chosen.data()), LATHE_OK) << last_message();
    const BatchRow expected_rows[] = {{a, rows[0].token}, {b, rows[1].token}};
    const auto expected = other->step(expected_rows).value();
    EXPECT_TRUE(std::ranges::equal(chosen, expected));
    const float* logits = nullptr;
    std::int32_t count = 0;
    ASSERT_EQ(lathe_batch_get_logits(batch.get(), 1, &logits, &count), LATHE_OK);
    EXPECT_TRUE(
        std::ranges::equal(std::span(logits, std::size_t(count)), other->logits(1).value()));
    const std::vector<std::uint32_t> odd(token_set_words(160), 0xaaaaaaaau);
    std::int32_t token = -2;
    ASSERT_EQ(lathe_batch_choose(batch.get(), 1, odd.data(), std::int32_t(odd.size()), &token),
              LATHE_OK);
    EXPECT_EQ(token, other->choose(1, odd).value());
    for (int r = 0; r < 2; ++r) rows[r].token = chosen[std::size_t(r)];
  }
  const std::int32_t* tokens = nullptr;
  std::int32_t count = 0;
  ASSERT_EQ(lathe_batch_get_tokens(batch.get(), b, &tokens, &count), LATHE_OK);
  EXPECT_TRUE(std::ranges::equal(std::span(tokens, std::size_t(count)), other->tokens(b).value()));
  EXPECT_EQ(length(batch, a), 7);
  ASSERT_EQ(lathe_batch_rollback(batch.get(), a, 3), LATHE_OK);
  EXPECT_EQ(length(batch, a), 3);
  ASSERT_EQ(lathe_batch_leave(batch.get(), a), LATHE_OK);
  EXPECT_REFUSED(lathe_batch_leave(batch.get(), a), LATHE_INVALID_ARGUMENT, "no sequence");
  EXPECT_EQ(join(batch), a);
}

TEST_F(BatchFunctions, DescribeTheBatch) {
  const BatchHandle batch = open_or_fail();
  model_.reset();  // the batch keeps what it needs
  auto info = api::sized<lathe_session_info>();
  ASSERT_EQ(lathe_batch_get_info(batch.get(), &info), LATHE_OK) << last_message();
  EXPECT_STREQ(info.executor, "graph");
  EXPECT_EQ(info.context, 48);
  EXPECT_EQ(info.vocabulary, 160);
  EXPECT_EQ(info.layers, 1);
  EXPECT_GT(info.launches, 5);
  const char* note = nullptr;
  EXPECT_REFUSED(lathe_batch_get_note(batch.get(), info.note_count, &note), LATHE_INVALID_ARGUMENT,
                 "note number");
  auto choice = api::sized<lathe_choice>();
  ASSERT_EQ(lathe_batch_get_choice(batch.get(), 0, &choice), LATHE_OK) << last_message();
  EXPECT_EQ(std::string(choice.what), "executor");
  EXPECT_EQ(std::string(choice.value), info.executor);
  EXPECT_REFUSED(lathe_batch_get_choice(batch.get(), info.choice_count, &choice),
                 LATHE_INVALID_ARGUMENT, "choice number");
  EXPECT_REFUSED(lathe_batch_get_choice(batch.get(), 0, nullptr), LATHE_INVALID_ARGUMENT,
                 "lathe_choice");
}

TEST_F(BatchFunctions, DraftsChangeNoToken) {
  const BatchHandle batch = open_or_fail();
  const std::int32_t plain = join(batch), drafted = join(batch);
  const Tokens expected = generate(batch, plain, 5, 12);
  auto options = api::sized<lathe_draft_options>();
  // Right, wrong, and more than there is room for.
  options.drafter = [](void* user, const std::int32_t*, std::int32_t count, std::int32_t most,
                       std::int32_t* drafts) {
    const Tokens& right = *static_cast<const Tokens*>(user);
    for (std::int32_t i = 0; i < most; ++i) {
      const auto at = std::size_t(count - 1 + i);
      drafts[i] = at < right.size() && at % 4 != 3 ? right[at] : 1;
    }
    return most + 5;
  };
  options.drafter_user = const_cast<Tokens*>(&expected);
  options.most = 3;
  // How many drafts were accepted.
  const auto run = [&](const lathe_draft_options* given) {
    Tokens tokens(12, -7);
    auto counts = api::sized<lathe_draft_counts>();
    EXPECT_EQ(lathe_batch_rollback(batch.get(), drafted, 0), LATHE_OK);
    EXPECT_EQ(lathe_batch_generate_with_drafts(batch.get(), drafted, 5, given, tokens.data(), 12,
                                               &counts),
              LATHE_OK)
        << last_message();
    EXPECT_EQ(tokens, expected);
    EXPECT_EQ(counts.steps + counts.accepted, 12);
    EXPECT_GE(counts.drafted, counts.accepted);
    return counts.accepted;
  };
  EXPECT_GT(run(&options), 2);
  run(nullptr);
  ASSERT_EQ(lathe_batch_leave(batch.get(), plain), LATHE_OK);  // trees take its place
  // A wrong path before the right one, and the ways that the text went on.
  auto trees = options;
  trees.drafter = nullptr;
  trees.paths = 2;
  trees.most = 4;
  auto looked_up = trees;
  trees.tree_drafter = [](void* user, const std::int32_t*, std::int32_t count, std::int32_t most,
                          std::int32_t* drafts, std::int32_t* parents) {
    const Tokens& right = *static_cast<const Tokens*>(user);
    const auto at = std::size_t(count - 1);
    for (std::int32_t i = 0; i < most; ++i) {
      drafts[i] = i == 0 ? 1 : right[std::min(at + std::size_t(i) - 1, right.size() - 1)];
      parents[i] = i < 2 ? -1 : i - 1;
    }
    return most + 5;
  };
  EXPECT_GT(run(&trees), 2);
  run(&looked_up);
  // No memory for more drafts than two paths of a step's four rows have.
  auto greedy = trees;
  greedy.most = std::numeric_limits<std::int32_t>::max();
  std::int32_t asked = 0;
  greedy.drafter_user = &asked;
  greedy.tree_drafter = [](void* user, const std::int32_t*, std::int32_t, std::int32_t most,
                           std::int32_t*, std::int32_t*) {
    *static_cast<std::int32_t*>(user) = most;
    return std::int32_t{0};
  };
  run(&greedy);
  EXPECT_EQ(asked, 6);
  std::int32_t fork = -1;
  ASSERT_EQ(lathe_batch_fork(batch.get(), drafted, &fork), LATHE_OK) << last_message();
  EXPECT_EQ(length(batch, fork), length(batch, drafted));
  ASSERT_EQ(lathe_batch_leave(batch.get(), fork), LATHE_OK);
  EXPECT_REFUSED(lathe_batch_fork(batch.get(), 99, &fork), LATHE_INVALID_ARGUMENT,
                 "no sequence 99");
  EXPECT_REFUSED(lathe_batch_fork(batch.get(), drafted, nullptr), LATHE_INVALID_ARGUMENT, "other");
  trees.paths = 1;
  options.paths = 3;
  looked_up.paths = 33;
  Tokens tokens(2);
  for (const lathe_draft_options* each : {&trees, &options})
    EXPECT_REFUSED(
        lathe_batch_generate_with_drafts(batch.get(), drafted, 5, each, tokens.data(), 2, nullptr),
        LATHE_INVALID_ARGUMENT, "the function given");
  EXPECT_REFUSED(lathe_batch_generate_with_drafts(batch.get(), drafted, 5, &looked_up,
                                                  tokens.data(), 2, nullptr),
                 LATHE_INVALID_ARGUMENT, "33 paths");
  options.paths = 0;
  options.most = -1;
  EXPECT_REFUSED(lathe_batch_generate_with_drafts(batch.get(), drafted, 5, &options, tokens.data(),
                                                  2, nullptr),
                 LATHE_INVALID_ARGUMENT, "-1 drafts");
}

TEST_F(BatchFunctions, TakeASessionsPrefix) {
  const BatchHandle batch = open_or_fail();
  lathe_session* opened = nullptr;
  ASSERT_EQ(lathe_session_open(model_.get(), &session_, &opened), LATHE_OK) << last_message();
  const SessionHandle session(opened);
  const Tokens prompt = {3, 77, 5};
  for (const std::int32_t token : prompt)
    ASSERT_EQ(lathe_session_step(session.get(), token), LATHE_OK);
  lathe_snapshot* snapshot = nullptr;
  ASSERT_EQ(lathe_session_snapshot(session.get(), 3, &snapshot), LATHE_OK) << last_message();
  join(batch);
  const std::int32_t sequence = join(batch);
  ASSERT_EQ(lathe_batch_restore(batch.get(), sequence, snapshot), LATHE_OK) << last_message();
  ASSERT_EQ(lathe_snapshot_close(snapshot), LATHE_OK);
  EXPECT_EQ(length(batch, sequence), 3);
  const lathe_kv_range range = {LATHE_PART_KEYS, 0, 0, 3};
  std::vector<float> expected(3 * 128), found(3 * 128);
  ASSERT_EQ(lathe_session_read_kv(session.get(), &range, expected.data(), 3 * 128), LATHE_OK);
  ASSERT_EQ(lathe_batch_read_kv(batch.get(), sequence, &range, found.data(), 3 * 128), LATHE_OK);
  EXPECT_EQ(found, expected);
  std::ranges::reverse(found);
  ASSERT_EQ(lathe_batch_write_kv(batch.get(), sequence, &range, found.data(), 3 * 128), LATHE_OK);
  ASSERT_EQ(lathe_batch_snapshot(batch.get(), sequence, 3, &snapshot), LATHE_OK);
  ASSERT_EQ(lathe_session_restore(session.get(), snapshot), LATHE_OK) << last_message();
  ASSERT_EQ(lathe_session_read_kv(session.get(), &range, expected.data(), 3 * 128), LATHE_OK);
  EXPECT_EQ(expected, found);
  ASSERT_EQ(lathe_snapshot_close(snapshot), LATHE_OK);
}

TEST_F(BatchFunctions, CountPages) {
  options_.kv_pages = 3;
  const BatchHandle batch = open_or_fail();
  const auto info = [&] {
    auto info = api::sized<lathe_session_info>();
    EXPECT_EQ(lathe_batch_get_info(batch.get(), &info), LATHE_OK) << last_message();
    return info;
  };
  EXPECT_EQ(info().kv_pages, 3);
  EXPECT_EQ(info().kv_pages_used, 0);
  const std::int32_t a = join(batch), b = join(batch);
  const Tokens tokens(30, 1);
  ASSERT_EQ(lathe_batch_feed(batch.get(), a, tokens.data(), 30), LATHE_OK) << last_message();
  EXPECT_EQ(info().kv_pages_used, 2);
  EXPECT_REFUSED(lathe_batch_feed(batch.get(), b, tokens.data(), 20), LATHE_OUT_OF_MEMORY,
                 "needs 2 more pages");
  ASSERT_EQ(lathe_batch_leave(batch.get(), a), LATHE_OK) << last_message();
  EXPECT_EQ(info().kv_pages_used, 0);
  ASSERT_EQ(lathe_batch_feed(batch.get(), b, tokens.data(), 20), LATHE_OK) << last_message();

  options_.kv_pages = 0;
  auto in_a_row = api::sized<lathe_session_info>();
  const BatchHandle other = open_or_fail();
  ASSERT_EQ(lathe_batch_get_info(other.get(), &in_a_row), LATHE_OK);
  EXPECT_EQ(in_a_row.kv_pages, 0);
}

TEST_F(BatchFunctions, ReadNoValuesOfAtomsWhoseCountIsWrong) {
  auto atoms = api::sized<lathe_kv_atoms>();
  atoms.count = 3;
  atoms.values = reinterpret_cast<const float*>(std::uintptr_t{64});  // where there are none
  atoms.value_count = std::size_t{1} << 50;
  session_.atoms = &atoms;
  BatchHandle batch;
  EXPECT_REFUSED(open(options_, batch), LATHE_INVALID_ARGUMENT, "3 atoms of 64 are 192");
  atoms.values = nullptr;
  atoms.value_count = 0;
  EXPECT_REFUSED(open(options_, batch), LATHE_INVALID_ARGUMENT, "there are no batches of it");
}

TEST_F(BatchFunctions, RefuseWhatIsWrongByName) {
  BatchHandle batch;
  lathe_batch_options options = options_;
  options.sequences = -1;
  EXPECT_NE(open(options, batch), LATHE_OK);
  options = options_;
  options.rows = 33;
  EXPECT_REFUSED(open(options, batch), LATHE_INVALID_ARGUMENT, "33");
  session_.executor = LATHE_EXECUTOR_CPU;
  EXPECT_REFUSED(open(options_, batch), LATHE_NOT_ELIGIBLE, "cpu executor");
  session_.executor = 77;
  EXPECT_REFUSED(open(options_, batch), LATHE_INVALID_ARGUMENT, "executor number 77");
  session_.executor = LATHE_EXECUTOR_AUTO;
  EXPECT_REFUSED(lathe_batch_open(model_.get(), &options_, nullptr), LATHE_INVALID_ARGUMENT,
                 "batch");

  batch = open_or_fail();
  const std::int32_t a = join(batch);
  Tokens chosen(40, -7);
  std::vector<lathe_batch_row> rows(40, {a, 1});
  EXPECT_REFUSED(lathe_batch_step(batch.get(), rows.data(), 5, chosen.data()), LATHE_OUT_OF_RANGE,
                 "5 rows");
  EXPECT_REFUSED(lathe_batch_step(batch.get(), rows.data(), 40, chosen.data()), LATHE_OUT_OF_RANGE,
                 "between 1 and 4");
  EXPECT_REFUSED(lathe_batch_step(batch.get(), nullptr, 1, chosen.data()), LATHE_INVALID_ARGUMENT,
                 "rows");
  EXPECT_REFUSED(lathe_batch_step(batch.get(), rows.data(), 1, nullptr), LATHE_INVALID_ARGUMENT,
                 "chosen");
  rows[0] = {a, 160};
  EXPECT_REFUSED(lathe_batch_step(batch.get(), rows.data(), 1, chosen.data()), LATHE_OUT_OF_RANGE,
                 "Token 160");
  EXPECT_REFUSED(lathe_batch_feed(batch.get(), a + 1, nullptr, 0), LATHE_INVALID_ARGUMENT,
                 "no sequence");
  EXPECT_REFUSED(lathe_batch_rollback(batch.get(), a, 1), LATHE_OUT_OF_RANGE, "go back to 1");
  EXPECT_REFUSED(lathe_batch_copy(batch.get(), a, a, 1), LATHE_OUT_OF_RANGE, "cannot be copied");
  EXPECT_EQ(chosen, Tokens(40, -7));
  EXPECT_EQ(length(batch, a), 0);
  auto sampling = api::sized<lathe_sampling>();
  sampling.temperature = -1;
  std::int32_t sequence = -5;
  EXPECT_REFUSED(lathe_batch_join(batch.get(), &sampling, &sequence), LATHE_INVALID_ARGUMENT,
                 "temperature");
  join(batch);
  EXPECT_REFUSED(lathe_batch_join(batch.get(), nullptr, &sequence), LATHE_OUT_OF_RANGE,
                 "2 sequences");
  EXPECT_EQ(sequence, -5);
  lathe_batch* closed = batch.get();
  batch.reset();
  EXPECT_REFUSED(lathe_batch_leave(closed, a), LATHE_INVALID_ARGUMENT, "batch is closed");
}

}  // namespace
}  // namespace lathe::testing
