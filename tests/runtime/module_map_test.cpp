// Holds the module map to one build per key, whoever asks, and to a disk cache that is never worse
// than none.
#include "runtime/module_map.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "tests/runtime/fake_driver.h"
#include "tests/runtime/scratch_directory.h"

namespace lathe::testing {
namespace {

// Counts what it is asked, takes its time, and fails when told to.
class CountingToolchain final : public Toolchain, private Assembler {
 public:
  Result<void> covers(const KernelKey& key, Route route) const override {
    return fake_.covers(key, route);
  }
  Result<std::string> compiler(Route route) const override {
    if (missing == route) return Error{Code::not_found, "the compiler is not installed", {}};
    return fake_.compiler(route);
  }
  std::string fingerprint() const override { return sources; }
  Result<Ptx> emit(const KernelKey& key, const Target& target, Route route) const override {
    ++emitted;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (failing == route) return Error{Code::compile, "the compiler refused", {{"log", "line 1"}}};
    return fake_.emit(key, target, route);
  }
  const Assembler& assembler() const override { return *this; }

  mutable std::atomic<int> emitted = 0;
  mutable std::atomic<int> assembled = 0;
  std::string refusing;  // this PTX
  std::optional<Route> failing;
  std::optional<Route> missing;
  std::string sources = "sources 1";

 private:
  const std::string& name() const override { return fake_.assembler().name(); }
  Result<Cubin> assemble(std::string_view ptx, const Target& target) const override {
    ++assembled;
    if (ptx == refusing) return assembly_error(name(), "ptxas input, line 1; error : no", ptx);
    return fake_.assembler().assemble(ptx, target);
  }

  FakeToolchain fake_;
};

KernelKey gemv(int n) {
  KernelKey key{.type = KernelType::gemv, .format = Format::q8_0};
  key.k = 256;
  key.n = n;
  return key;
}

class ModuleMapTest : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(fake_.leaks(), "1 retained contexts, ");
    EXPECT_EQ(fake_.violations(), std::vector<std::string>{});
  }

  ModuleMap make(const DiskCache* cache = nullptr,
                 std::vector<Route> routes = {Route::llvm, Route::nvrtc}) {
    return ModuleMap(context_, toolchain_, cache, std::move(routes));
  }

  FakeDriver fake_;
  Context context_ = Context::open(fake_.table(), nullptr, 0).value();
  CountingToolchain toolchain_;
  ScratchDirectory scratch_;
};

TEST_F(ModuleMapTest, EightThreadsShareOneFlight) {
  ModuleMap map = make();
  std::vector<const Kernel*> kernels(8);
  std::vector<std::thread> threads;
  for (const Kernel*& kernel : kernels) {
    threads.emplace_back([&] { kernel = map.get(gemv(64)).value(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Kernel* kernel : kernels) EXPECT_EQ(kernel, kernels[0]);
  EXPECT_EQ(toolchain_.emitted, 1);
  EXPECT_EQ(map.counts().built, 1);
  EXPECT_EQ(map.counts().from_memory, 7);
  EXPECT_TRUE(map.loaded(gemv(64)));
  EXPECT_FALSE(map.loaded(gemv(128)));
}

TEST_F(ModuleMapTest, ThreadsThatWaitForAFailureAllHearOfItAndLaterOnesTryAgain) {
  ModuleMap map = make(nullptr, {Route::llvm});
  toolchain_.failing = Route::llvm;
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { failures += !map.get(gemv(64)); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 8);
  toolchain_.failing.reset();
  EXPECT_TRUE(map.get(gemv(64)));
}

TEST_F(ModuleMapTest, PrepareBuildsEachOnceAndTellsOnTheCallersThread) {
  ModuleMap map = make();
  std::vector<KernelKey> keys;
  for (int i = 1; i <= 12; ++i) keys.push_back(gemv(64 * i));
  const auto here = std::this_thread::get_id();
  std::int64_t last = 0;
  ASSERT_TRUE(map.prepare(keys, [&](std::string_view what, std::int64_t done, std::int64_t total) {
    EXPECT_EQ(std::this_thread::get_id(), here);
    EXPECT_EQ(what, "preparing kernels");
    EXPECT_GT(done, last);
    EXPECT_EQ(total, 12);
    last = done;
  }));
  EXPECT_EQ(last, 12);
  EXPECT_EQ(map.counts().built, 12);
  ASSERT_TRUE(map.prepare(keys, nullptr));
  EXPECT_EQ(map.counts().built, 12);
  EXPECT_TRUE(map.prepare({}, nullptr));
}

TEST_F(ModuleMapTest, ARouteThatFailsIsPassedOverAndNoted) {
  ModuleMap map = make();
  toolchain_.failing = Route::llvm;
  const auto kernel = map.get(gemv(64));
  ASSERT_TRUE(kernel);
  EXPECT_EQ((*kernel)->info.route, Route::nvrtc);
  ASSERT_EQ(map.notes().size(), 1u);
  EXPECT_NE(map.notes()[0].find("llvm refused: the compiler refused"), std::string::npos);
}

TEST_F(ModuleMapTest, AnErrorNamesTheKeyAndWhatEachRouteSaid) {
  ModuleMap map = make();
  toolchain_.failing = Route::llvm;
  toolchain_.missing = Route::nvrtc;
  const auto kernel = map.get(gemv(64));
  ASSERT_FALSE(kernel);
  const std::string text = kernel.error().text();
  EXPECT_NE(text.find(gemv(64).text()), std::string::npos) << text;
  EXPECT_NE(text.find("llvm: the compiler refused"), std::string::npos) << text;
  EXPECT_NE(text.find("nvrtc: the compiler is not installed"), std::string::npos) << text;
  EXPECT_NE(text.find("log: line 1"), std::string::npos) << text;
}

TEST_F(ModuleMapTest, AnImpossibleKeyIsRefused) {
  ModuleMap map = make();
  EXPECT_FALSE(map.get(gemv(-5)));
  EXPECT_EQ(toolchain_.emitted, 0);
}

TEST_F(ModuleMapTest, ASecondRunTakesAllFromDiskWithoutACompiler) {
  const DiskCache cache = DiskCache::open(scratch_.path()).value();
  { ASSERT_TRUE(make(&cache).get(gemv(64))); }
  ModuleMap map = make(&cache);
  const auto kernel = map.get(gemv(64));
  ASSERT_TRUE(kernel);
  EXPECT_TRUE((*kernel)->info.from_cache);
  EXPECT_EQ((*kernel)->info.geometry.threads, row(KernelType::gemv).geometry(gemv(64)).threads);
  EXPECT_EQ((*kernel)->info.geometry.grid_x, row(KernelType::gemv).geometry(gemv(64)).grid_x);
  EXPECT_EQ(toolchain_.emitted, 1);
  EXPECT_EQ(map.counts().built, 0);
  EXPECT_EQ(map.counts().from_disk, 1);
}

TEST_F(ModuleMapTest, ChangedSourcesThatLowerToTheSamePtxSkipTheAssembler) {
  const DiskCache cache = DiskCache::open(scratch_.path()).value();
  { ASSERT_TRUE(make(&cache).get(gemv(64))); }
  toolchain_.sources = "sources 2";
  ModuleMap map = make(&cache);
  ASSERT_TRUE(map.get(gemv(64)));
  EXPECT_EQ(toolchain_.emitted, 2);
  EXPECT_EQ(map.counts().from_disk, 1);
}

TEST_F(ModuleMapTest, DamagedEntriesAreBuiltAnew) {
  const DiskCache cache = DiskCache::open(scratch_.path()).value();
  { ASSERT_TRUE(make(&cache).get(gemv(64))); }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(scratch_.path())) {
    if (entry.is_regular_file()) std::filesystem::resize_file(entry, 20);
  }
  ModuleMap map = make(&cache);
  ASSERT_TRUE(map.get(gemv(64)));
  EXPECT_EQ(map.counts().built, 1);
}

TEST_F(ModuleMapTest, ACachedCubinThatTheDriverRefusesIsBuiltAnew) {
  const DiskCache cache = DiskCache::open(scratch_.path()).value();
  { ASSERT_TRUE(make(&cache).get(gemv(64))); }
  ModuleMap map = make(&cache);
  // The calls before the load are the push of the context.
  fake_.fail_call(1, CUDA_ERROR_NO_BINARY_FOR_GPU);
  ASSERT_TRUE(map.get(gemv(64)));
  EXPECT_EQ(fake_.failed_call(), "cuLibraryLoadData");
}

TEST_F(ModuleMapTest, ACacheThatCannotBeWrittenIsANoteOnly) {
  const DiskCache cache = DiskCache::open(scratch_.path()).value();
  std::filesystem::remove_all(cache.directory().path());
  ModuleMap map = make(&cache);
  ASSERT_TRUE(map.get(gemv(64)));
  ASSERT_EQ(map.notes().size(), 1u);
  EXPECT_NE(map.notes()[0].find("disk cache"), std::string::npos);
}

TEST_F(ModuleMapTest, RefusedPtxStaysRefusedAndHarmsNothingElse) {
  ModuleMap map = make(nullptr, {Route::llvm});
  toolchain_.refusing = gemv(64).text();
  std::string first;
  for (int i = 0; i < 3; ++i) {
    const auto kernel = map.get(gemv(64));
    ASSERT_FALSE(kernel);
    if (first.empty()) first = kernel.error().text();
    EXPECT_EQ(kernel.error().text(), first);
  }
  EXPECT_NE(first.find("ptx:     1 | "), std::string::npos) << first;
  EXPECT_EQ(toolchain_.assembled, 1);
  EXPECT_TRUE(map.get(gemv(128)));
}

TEST_F(ModuleMapTest, EachKernelIsALineOfTheLog) {
  const DiskCache cache = DiskCache::open(scratch_.path() + "/cache").value();
  std::vector<std::string> lines;
  std::vector<std::string> notes;
  const Log log =
      Log::open([&](LogLevel, std::string_view line) { lines.emplace_back(line); }, "", notes);
  const KernelTrace trace(log, "");
  {
    ModuleMap map(context_, toolchain_, &cache, {Route::llvm}, &trace);
    ASSERT_TRUE(map.get(gemv(64)));
    ASSERT_TRUE(map.get(gemv(64)));
  }
  {
    ModuleMap map(context_, toolchain_, &cache, {Route::llvm}, &trace);
    ASSERT_TRUE(map.get(gemv(64)));
    toolchain_.failing = Route::llvm;
    ASSERT_FALSE(map.get(gemv(128)));
  }
  ASSERT_EQ(lines.size(), 3u);
  const std::string key = gemv(64).text();
  EXPECT_TRUE(lines[0].starts_with("lathe,1,kernel,built,key=" + key + ",route=llvm,")) << lines[0];
  EXPECT_NE(lines[0].find(",assemble_ms="), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find(",registers="), std::string::npos) << lines[0];
  EXPECT_TRUE(lines[1].starts_with("lathe,1,kernel,cached,key=" + key)) << lines[1];
  EXPECT_NE(lines[1].find(",emit_ms=0.00,assemble_ms=0.00,"), std::string::npos) << lines[1];
  EXPECT_EQ(lines[2], "lathe,1,kernel,refused,key=" + gemv(128).text() +
                          ",route=llvm,why=the compiler refused,log=line 1");
}

TEST_F(ModuleMapTest, PtxAndCubinsAreDumpedAlsoWhenTheyAreRefused) {
  const std::string folder = scratch_.path() + "/a/dump";
  const KernelTrace trace(Log{}, folder);
  ModuleMap map(context_, toolchain_, nullptr, {Route::llvm}, &trace);
  ASSERT_TRUE(map.get(gemv(64)));
  toolchain_.refusing = gemv(128).text();
  const auto refused = map.get(gemv(128));
  ASSERT_FALSE(refused);
  const std::string good = folder + "/" + gemv(64).text() + ".llvm";
  const std::string bad = folder + "/" + gemv(128).text() + ".llvm";
  EXPECT_EQ(std::filesystem::file_size(good + ".ptx"), gemv(64).text().size());
  EXPECT_GT(std::filesystem::file_size(good + ".cubin"), gemv(64).text().size());
  EXPECT_TRUE(std::filesystem::exists(bad + ".ptx"));
  EXPECT_FALSE(std::filesystem::exists(bad + ".cubin"));
  EXPECT_NE(refused.error().text().find("path: " + bad + ".ptx"), std::string::npos);
  EXPECT_EQ(trace.trouble(), "");
}

TEST_F(ModuleMapTest, AFolderThatTakesNoDumpIsToldAndNoFailure) {
  std::ofstream(scratch_.path() + "/file") << "no folder";
  const KernelTrace trace(Log{}, scratch_.path() + "/file");
  ModuleMap map(context_, toolchain_, nullptr, {Route::llvm}, &trace);
  EXPECT_TRUE(map.get(gemv(64)));
  EXPECT_NE(trace.trouble().find("Not a directory"), std::string::npos) << trace.trouble();
}

}  // namespace
}  // namespace lathe::testing
