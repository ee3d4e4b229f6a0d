// Owns what can be said of the mega executor without a GPU: what it refuses, what it launches, and
// that its records and stream entries deal every tile of every matrix to exactly one block.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "lathe/codegen/kernel_table.h"
#include "lathe/codegen/tile.h"
#include "ptx_templates/ops/step_records.h"
#include "runtime/session_base.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/tiny_model.h"

namespace lathe::testing {
namespace {

SessionOptions mega_options(Fusion fusion = Fusion::automatic) {
  SessionOptions options;
  options.executor = ExecutorKind::mega;
  options.plan.context = 32;
  options.plan.fusion = fusion;
  options.disk_cache = false;
  return options;
}

std::string refusal(const FakeDriver& fake, const SessionOptions& options,
                    const TinyModel& model = model_shape(1)) {
  const auto session = open_session(make_model(model), options, fake.platform());
  EXPECT_FALSE(session);
  if (session) return {};
  EXPECT_EQ(session.error().code, Code::not_eligible) << session.error().text();
  EXPECT_EQ(fake.leaks(), "");
  return session.error().message;
}

TEST(MegaExecutor, NeedsAllBlocksAtOnce) {
  FakeDriver none({.multiprocessors = 4, .blocks_per_multiprocessor = 0});
  EXPECT_EQ(refusal(none, mega_options()),
            "no persistent kernel: 4 blocks would have to run at once, and 4 multiprocessors take "
            "0 each");
}

TEST(MegaExecutor, NeedsBulkCopies) {
  FakeDriver old({.compute = 80});
  const std::string message = refusal(old, mega_options());
  EXPECT_NE(message.find("sm_80 has no bulk copies"), std::string::npos) << message;
  EXPECT_NE(message.find("persistent kernel"), std::string::npos) << message;
  // Nor is a plan of fused kernels compiled for it when it is asked for.
  const auto session = open_session(make_model(1), mega_options(Fusion::full), old.platform());
  ASSERT_FALSE(session);
  EXPECT_NE(session.error().text().find("sm_80 has no bulk copies"), std::string::npos)
      << session.error().text();
}

TEST(MegaExecutor, NeedsTheFusedPlan) {
  FakeDriver fake;
  EXPECT_NE(refusal(fake, mega_options(Fusion::none)).find("Fusion::full"), std::string::npos);
  TinyModel model = model_shape(1);
  model.weights = Format::f32;
  model.exceptions.clear();
  EXPECT_NE(refusal(fake, mega_options(), model).find("f32"), std::string::npos);
}

TEST(MegaExecutor, NeedsItsRouteAmongThoseWanted) {
  FakeDriver fake;
  SessionOptions options = mega_options();
  options.routes = {Route::llvm};
  EXPECT_EQ(refusal(fake, options),
            "no persistent kernel: NVRTC makes it, and is not among the routes wanted");
  options.executor = ExecutorKind::automatic;
  const auto session = open_session(make_model(1), options, fake.platform());
  ASSERT_TRUE(session) << session.error().text();
  EXPECT_EQ((*session)->report().executor, "graph");
}

TEST(MegaExecutor, AutomaticTakesItWhereItApplies) {
  const auto executor_of = [](const FakeOptions& options, Fusion fusion) {
    FakeDriver fake(options);
    SessionOptions automatic = mega_options(fusion);
    automatic.executor = ExecutorKind::automatic;
    const auto session = open_session(make_model(1), automatic, fake.platform());
    EXPECT_TRUE(session) << session.error().text();
    if (!session) return std::string();
    EXPECT_TRUE((*session)->step(1));
    const SessionReport& report = (*session)->report();
    return report.executor + (report.notes.empty() ? "" : "; " + report.notes.back());
  };
  EXPECT_EQ(executor_of({}, Fusion::automatic), "mega");
  EXPECT_EQ(executor_of({}, Fusion::none), "graph");
  EXPECT_NE(executor_of({.compute = 80}, Fusion::automatic).find("graph; a kernel for each"),
            std::string::npos);
  EXPECT_EQ(executor_of({.blocks_per_multiprocessor = 0}, Fusion::automatic),
            "graph; the graph executor: no persistent kernel: 4 blocks would have to run at once, "
            "and 4 multiprocessors take 0 each");
}

TEST(MegaExecutor, OtherExecutorsFallBackWithANote) {
  for (const FakeOptions& options :
       {FakeOptions{.compute = 80}, FakeOptions{.compute = 120, .shared_memory = 99 * 1024}}) {
    FakeDriver fake(options);
    SessionOptions graph = mega_options();
    graph.executor = ExecutorKind::graph;
    const auto session = open_session(make_model(1), graph, fake.platform());
    ASSERT_TRUE(session) << session.error().text();
    EXPECT_EQ((*session)->plan().options.fusion, Fusion::none);
    const auto& notes = (*session)->report().notes;
    EXPECT_TRUE(std::ranges::any_of(notes, [&](const std::string& note) {
      return note.find("not five a layer") != std::string::npos &&
             note.find(options.compute == 80 ? "bulk copies" : "101376 bytes of shared memory") !=
                 std::string::npos;
    }));
  }
}

TEST(MegaExecutor, LaunchesOnceForAnyNumberOfTokens) {
  FakeDriver fake({.multiprocessors = 6});
  const auto session = open_session(make_model(), mega_options(), fake.platform()).value();
  fake.reset_counts();
  std::vector<std::int32_t> tokens(9);
  ASSERT_TRUE(session->generate(3, tokens));
  EXPECT_EQ(fake.calls("cuLaunchCooperativeKernel"), 1);
  EXPECT_EQ(fake.calls("cuLaunchKernel"), 0);
  const CooperativeLaunch launch = fake.cooperative_launch().value();
  EXPECT_EQ(launch.blocks, 6u);
  EXPECT_EQ(launch.threads, 256u);
  EXPECT_GT(launch.shared_bytes, 0u);
  EXPECT_LE(launch.shared_bytes, 227u * 1024);
  EXPECT_EQ(launch.tokens, 9);
  EXPECT_EQ(launch.chooses, 1);
  ASSERT_TRUE(session->step(5));
  EXPECT_EQ(fake.cooperative_launch()->tokens, 1);
}

TEST(MegaExecutor, LeavesDrawingToThePlansKernels) {
  FakeDriver fake;
  const auto session = open_session(make_model(), mega_options(), fake.platform()).value();
  ASSERT_TRUE(session->set_sampling({.temperature = 1}));
  fake.reset_counts();
  std::vector<std::int32_t> tokens(3);
  ASSERT_TRUE(session->generate(3, tokens));
  EXPECT_EQ(fake.calls("cuLaunchCooperativeKernel"), 3);
  EXPECT_EQ(fake.calls("cuLaunchKernel"), 3 * 3);  // top_k, sample, and the end of the token
  EXPECT_EQ(fake.cooperative_launch()->tokens, 1);
  EXPECT_EQ(fake.cooperative_launch()->chooses, 0);
  ASSERT_TRUE(session->set_sampling({}));
  ASSERT_TRUE(session->generate(3, tokens));
  EXPECT_EQ(fake.cooperative_launch()->chooses, 1);
  EXPECT_EQ(fake.cooperative_launch()->tokens, 3);
}

TEST(MegaExecutor, AFaultIsAnErrorAndNoResult) {
  FakeDriver fake;
  const auto session = open_session(make_model(), mega_options(), fake.platform()).value();
  ASSERT_TRUE(session->step(3));
  ASSERT_TRUE(session->sampled());
  const std::uint64_t state = fake.cooperative_launch()->pointers[3];
  reinterpret_cast<dev::PersistentState*>(state)->fault = 1;
  const auto sampled = session->sampled();
  ASSERT_FALSE(sampled);
  EXPECT_NE(sampled.error().message.find("gave up"), std::string::npos);
  EXPECT_FALSE(session->logits());
}

// What a launch finds in device memory, which here is the host's.
struct Records {
  Records(const FakeDriver& fake, const Session& session) {
    const CooperativeLaunch launch = fake.cooperative_launch().value();
    blocks = static_cast<int>(launch.blocks);
    for (const Step& step : session.plan().steps) {
      if (step.key.type == KernelType::top_k) break;
      keys.push_back(step.key);
    }
    steps = reinterpret_cast<const dev::StepRecord*>(launch.pointers[0]);
    entries = reinterpret_cast<const dev::StreamEntry*>(launch.pointers[1]);
    for (const KernelKey& key : keys)
      if (key.type == KernelType::matvec) matrices += 1 + (key.n_b > 0) + (key.n_c > 0);
  }

  const dev::StepRecord& step(int block, std::size_t i) const {
    return steps[static_cast<std::size_t>(block) * keys.size() + i];
  }
  const dev::StreamEntry& entry(int block, int i) const { return entries[block * matrices + i]; }

  int blocks = 0, matrices = 0;
  std::vector<KernelKey> keys;
  const dev::StepRecord* steps = nullptr;
  const dev::StreamEntry* entries = nullptr;
};

// The runs of all blocks, in order, are the matrix: no tile twice, none left out.
void expect_all_tiles_once(const Records& records, int entry, const TileShape& shape) {
  const dev::u8* at = nullptr;
  std::int64_t tiles = 0;
  for (int block = 0; block < records.blocks; ++block) {
    const dev::StreamEntry& e = records.entry(block, entry);
    EXPECT_EQ(e.tile_units * 16, shape.tile_bytes);
    EXPECT_EQ(e.columns, shape.tiles_per_row);
    if (e.rows == 0) continue;
    if (at) {
      EXPECT_EQ(e.tiles, at) << "block " << block;
    }
    at = e.tiles + std::int64_t{e.rows} * e.columns * shape.tile_bytes;
    tiles += e.rows * e.columns;
  }
  EXPECT_EQ(tiles, shape.tiles());
}

void check_records(const FakeDriver& fake, const Session& session) {
  const Records records(fake, session);
  int entry = 0;
  std::size_t attends = 0;
  for (std::size_t i = 0; i < records.keys.size(); ++i) {
    const KernelKey& key = records.keys[i];
    SCOPED_TRACE(key.text());
    const dev::StepRecord& first = records.step(0, i);
    if (key.type == KernelType::embed) {
      EXPECT_EQ(first.step, dev::kEmbedStep);
      EXPECT_NE(first.embed.table, nullptr);
      continue;
    }
    if (key.type == KernelType::attend) {
      EXPECT_EQ(first.step, dev::kAttendStep);
      EXPECT_NE(first.attend.y, nullptr);
      EXPECT_EQ(first.attend.q_norm != nullptr, key.qk_norm);
      ++attends;
      continue;
    }
    ASSERT_EQ(first.step, dev::kMatvecStep);
    const Format formats[] = {key.format, key.format_b, key.format_c};
    const int rows[] = {key.n, key.n_b, key.n_c};
    const bool last = i + 1 == records.keys.size();
    EXPECT_EQ(first.matvec.shape.kind, last        ? dev::kLogitRows
                                       : key.gated ? dev::kGatedRows
                                                   : dev::kPlainRows);
    EXPECT_EQ(first.matvec.operands.norm != nullptr, key.norm);
    EXPECT_EQ(first.matvec.operands.residual != nullptr, key.residual);
    EXPECT_EQ(first.matvec.operands.stream_out != nullptr, key.joined);
    for (int m = 0; m < 3; ++m) {
      if (rows[m] == 0) continue;
      const TileShape shape = tile_shape(formats[m], rows[m], key.k).value();
      expect_all_tiles_once(records, entry, shape);
      for (int block = 0; block < records.blocks; ++block) {
        // What a block streams is what it finishes.
        const dev::MatvecShape& s = records.step(block, i).matvec.shape;
        EXPECT_EQ(s.count[m], records.entry(block, entry).rows);
        EXPECT_EQ(s.columns, shape.tiles_per_row);
        EXPECT_EQ(s.rows[m], rows[m]);
        // A block's rows of a gate and of its up are the same.
        if (key.gated) {
          EXPECT_EQ(s.first[0], s.first[1]);
          EXPECT_EQ(s.count[0], s.count[1]);
        }
      }
      ++entry;
    }
  }
  EXPECT_EQ(entry, records.matrices);
  EXPECT_EQ(attends, static_cast<std::size_t>(session.plan().spec.layers));
}

TEST(MegaExecutor, RecordsDealEveryTileToOneBlock) {
  for (int multiprocessors : {2, 3, 7, 13, 132}) {
    for (int vocab : {5, 160, 331}) {
      FakeDriver fake({.execute = false, .multiprocessors = multiprocessors});
      TinyModel model = model_shape(2);
      model.vocab = vocab;
      model.ffn = multiprocessors < 7 ? 256 : vocab > 200 ? 1280 : 512;
      const auto session = open_session(make_model(model), mega_options(), fake.platform());
      ASSERT_TRUE(session) << session.error().text();
      ASSERT_TRUE((*session)->step(1));
      SCOPED_TRACE(std::to_string(multiprocessors) + " blocks, vocabulary " +
                   std::to_string(vocab));
      check_records(fake, **session);
    }
  }
}

TEST(MegaExecutor, RecordsOfEveryFamily) {
  for (TinyModel model : {tiny_llama(), tiny_qwen2(), tiny_qwen3(), tiny_gemma3()}) {
    FakeDriver fake({.execute = false, .multiprocessors = 5});
    const auto session = open_session(make_model(fusible(model)), mega_options(), fake.platform());
    ASSERT_TRUE(session) << model.architecture << ": " << session.error().text();
    ASSERT_TRUE((*session)->step(1));
    check_records(fake, **session);
  }
}

// Of shapes no model has, so that any split of any phase is met.
TEST(MegaExecutor, SharesArePartitions) {
  for (int blocks : {1, 2, 3, 5, 16, 131, 132, 1024}) {
    for (const auto& [a, b, c] :
         {std::array{1, 0, 0}, std::array{16, 16, 16}, std::array{17, 1, 33},
          std::array{4096, 1024, 1024}, std::array{100, 3000, 7}, std::array{128256, 0, 0}}) {
      for (int kind : {dev::kPlainRows, dev::kGatedRows}) {
        if (kind == dev::kGatedRows && (a != b || c != 0)) continue;
        dev::MatvecShape s{};
        s.rows[0] = a, s.rows[1] = b, s.rows[2] = c;
        s.kind = kind;
        s.columns = 16;
        int next[3] = {};
        for (int block = 0; block < blocks; ++block) {
          dev::share_phase(s, block, blocks);
          dev::place_sums(s, 16, 1, 0);
          int all = 0;
          for (int m = 0; m < 3; ++m) {
            EXPECT_GE(s.count[m], 0);
            if (s.count[m] > 0) {
              EXPECT_EQ(s.first[m], next[m]);
              next[m] = s.first[m] + s.count[m];
            }
            if (m == 0 || kind == dev::kPlainRows) all += s.count[m];
          }
          EXPECT_LE(all, s.most);
          EXPECT_GT(s.batch, 0);
          EXPECT_EQ(s.sums, s.batch * 16 * 16);
          EXPECT_LE(s.sums, dev::kPartialFloats);
        }
        for (int m = 0; m < 3; ++m) EXPECT_EQ(next[m], dev::ceil_div(s.rows[m], 16));
      }
    }
  }
}

// While some warps still read the sums of one phase, the others leave those of the next.
TEST(MegaExecutor, SumsOfNeighboursFitTogether) {
  for (int warps : {4, 6, 8, 12, 16}) {
    for (int a = 1; a <= 40; ++a) {
      for (int b = 1; b <= 40; ++b) {
        dev::MatvecShape first{}, second{};
        first.columns = second.columns = 16;
        first.most = a, second.most = b;
        second.kind = dev::kGatedRows;
        const int sums[] = {dev::all_sums(first, warps, 1), dev::all_sums(second, warps, 1)};
        dev::place_sums(first, warps, 1, sums[1]);
        dev::place_sums(second, warps, 1, sums[0]);
        EXPECT_LE(first.sums + second.sums, dev::kPartialFloats)
            << a << " and " << b << " row tiles, " << warps << " warps";
        // Batches of a phase follow one another.
        if (first.batch < a) {
          EXPECT_LE(2 * first.sums, dev::kPartialFloats);
        }
      }
    }
  }
}

template <int kTogether>
void expect_every_tile_owned_once() {
  for (int warps : {1, 4, 6, 8, 12, 16}) {
    for (int columns = 1; columns <= 300; ++columns) {
      const int rows = 7, step = kTogether > 1 ? 1 : warps;
      std::vector<int> owners(static_cast<std::size_t>(rows * columns));
      for (int warp = 0; warp < warps; ++warp) {
        const dev::OwnTiles own = dev::own_tiles<kTogether>(
            warp, warps, columns, dev::column_inverse(columns, kTogether));
        for (int row = own.group; row < rows; row += own.groups)
          for (int j = 0; j < own.count; ++j)
            ++owners.at(static_cast<std::size_t>(row * columns + own.column + j * step));
      }
      EXPECT_EQ(owners, std::vector<int>(owners.size(), 1))
          << warps << " warps, " << columns << " columns, " << kTogether << " together";
    }
  }
}
TEST(MegaExecutor, WarpsOwnEveryTileOnce) {
  expect_every_tile_owned_once<1>();
  expect_every_tile_owned_once<2>();
}

// Warps that multiply pairs have places of their own for sums and for activations.
TEST(MegaExecutor, PairsOfTilesMeetInNoPlace) {
  for (int warps : {4, 8, 12, 16}) {
    for (int columns = 1; columns <= 300; ++columns) {
      std::vector<int> activations(static_cast<std::size_t>(std::max(columns, 2 * warps)));
      std::vector<int> parts(static_cast<std::size_t>(dev::sum_places(columns, warps, 2)));
      for (int warp = 0; warp < warps; ++warp) {
        const dev::OwnTiles own =
            dev::own_tiles<2>(warp, warps, columns, dev::column_inverse(columns, 2));
        for (int j = 0; j < own.count; ++j)
          ++activations.at(static_cast<std::size_t>(own.place + j));
        if (own.count > 0 && own.group == 0) ++parts.at(static_cast<std::size_t>(own.part));
      }
      EXPECT_LE(*std::max_element(activations.begin(), activations.end()), 1)
          << warps << " warps, " << columns << " columns";
      EXPECT_EQ(parts, std::vector<int>(parts.size(), 1))
          << warps << " warps, " << columns << " columns";
    }
  }
}

}  // namespace
}  // namespace lathe::testing
