// Holds the look into a cache, its upkeep, and its passage as one file, to lathe/runtime/cache.h.
#include "lathe/runtime/cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "runtime/device_impl.h"
#include "tests/runtime/fake_driver.h"
#include "tests/runtime/scratch_directory.h"

namespace lathe::testing {
namespace {

namespace fs = std::filesystem;

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A cache with the two entries of each of three kernels.
class CacheCatalogTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(run(), 3); }

  // Kernels that had to be built.
  int run(std::string directory = {}) {
    const FakeDriver fake;
    DeviceOptions options;
    options.routes = {Route::text};
    options.cache_directory = directory.empty() ? directory_ : directory;
    const auto device = DeviceImpl::open(options, fake.platform()).value();
    for (int i = 1; i <= 3; ++i) EXPECT_TRUE(device->kernel(gemv(64 * i)));
    return device->counts().built;
  }

  static KernelKey gemv(int n) {
    KernelKey key{.type = KernelType::gemv, .format = Format::q8_0};
    key.k = 256;
    key.n = n;
    return key;
  }

  std::vector<std::string> files() const {
    std::vector<std::string> paths;
    for (const auto& entry : fs::recursive_directory_iterator(directory_)) {
      if (entry.is_regular_file()) paths.push_back(entry.path());
    }
    return paths;
  }

  ScratchDirectory scratch_;
  const std::string directory_ = scratch_.path() + "/cache";
  const std::string archive_ = scratch_.path() + "/archive";
};

TEST_F(CacheCatalogTest, TheStateCountsEntriesAndUnfinishedFiles) {
  std::ofstream(directory_ + "/v1/tmp/entry.abcdef") << "half";
  std::ofstream(directory_ + "/v1/tmp/foreign") << "no entry";
  const CacheState state = examine_cache(directory_).value();
  EXPECT_EQ(state.entries, 6);
  EXPECT_GT(state.bytes, 6 * 32);
  EXPECT_EQ(state.unfinished, 1);
  EXPECT_EQ(state.unfinished_bytes, 4);
  EXPECT_GT(state.oldest_read, 1700000000);
  EXPECT_GE(state.newest_read, state.oldest_read);
}

TEST_F(CacheCatalogTest, TheListNamesKernelsAndCubins) {
  const auto entries = list_cache(directory_).value();
  ASSERT_EQ(entries.size(), 6u);
  EXPECT_EQ(entries[0].kind, CacheEntryKind::kernel);
  EXPECT_EQ(entries[0].subject, gemv(128).text());  // in the order of the alphabet
  EXPECT_EQ(entries[0].target, "sm_90a");
  EXPECT_EQ(entries[0].route, "text");
  EXPECT_EQ(entries[0].compiler, "fake text");
  EXPECT_EQ(entries[0].assembler, "fake assembler 1.0");
  EXPECT_EQ(entries[3].kind, CacheEntryKind::cubin);
  EXPECT_EQ(entries[3].target, "sm_90a");
}

TEST_F(CacheCatalogTest, TheCodeOfAKernelIsItsPtxAndItsCubin) {
  const auto entries = list_cache(directory_).value();
  const auto code = read_cached_code(directory_, entries[0].digest);
  ASSERT_TRUE(code) << code.error().text();
  EXPECT_EQ(code->ptx, gemv(128).text());  // the fake tool chain's
  EXPECT_EQ(code->entry_point, gemv(128).symbol());
  EXPECT_EQ(code->geometry.threads, row(KernelType::gemv).geometry(gemv(128)).threads);
  EXPECT_GT(code->cubin.size(), code->ptx.size());
  EXPECT_EQ(read_cached_code(directory_, std::string(32, '0')).error().code, Code::not_found);
  EXPECT_EQ(read_cached_code(directory_, "../..").error().code, Code::invalid_argument);
}

TEST_F(CacheCatalogTest, AMissingCacheIsNotFoundAndNotMade) {
  const std::string none = scratch_.path() + "/none";
  EXPECT_EQ(examine_cache(none).error().code, Code::not_found);
  EXPECT_EQ(list_cache(none).error().code, Code::not_found);
  EXPECT_EQ(export_cache(none, archive_).error().code, Code::not_found);
  EXPECT_EQ(trim_cache(none, 1).error().code, Code::not_found);
  EXPECT_EQ(clear_cache(none).error().code, Code::not_found);
  EXPECT_EQ(verify_cache(none, true).error().code, Code::not_found);
  EXPECT_FALSE(fs::exists(none));
}

TEST_F(CacheCatalogTest, TrimAndClearRemoveEntriesOnly) {
  std::ofstream(directory_ + "/v1/README") << "mine";
  const CacheState before = examine_cache(directory_).value();
  const CacheAmount trimmed = trim_cache(directory_, before.bytes - 1).value();
  EXPECT_EQ(trimmed.entries, 1);
  const CacheAmount cleared = clear_cache(directory_).value();
  EXPECT_EQ(cleared.entries, 5);
  EXPECT_EQ(trimmed.bytes + cleared.bytes, before.bytes);
  EXPECT_EQ(files(), std::vector<std::string>{directory_ + "/v1/README"});
  EXPECT_EQ(run(), 3);
}

TEST_F(CacheCatalogTest, VerifyFindsDamageAndRemovesItWhenAsked) {
  const std::string victim = files().front();
  std::fstream(victim, std::ios::in | std::ios::out | std::ios::binary).seekp(40).put('\xff');
  CacheVerdict verdict = verify_cache(directory_, false).value();
  EXPECT_EQ(verdict.good.entries, 5);
  ASSERT_EQ(verdict.damaged.size(), 1u);
  EXPECT_EQ(verdict.damaged[0].path, victim);
  EXPECT_EQ(verdict.damaged[0].reason, "its checksum is wrong");
  EXPECT_TRUE(fs::exists(victim));
  verdict = verify_cache(directory_, true).value();
  EXPECT_EQ(verdict.damaged.size(), 1u);
  EXPECT_FALSE(fs::exists(victim));
  EXPECT_TRUE(verify_cache(directory_, false)->damaged.empty());
}

TEST_F(CacheCatalogTest, AnExportedCacheIsFilledElsewhere) {
  const auto exported = export_cache(directory_, archive_);
  ASSERT_TRUE(exported) << exported.error().text();
  EXPECT_EQ(exported->entries, 6);
  EXPECT_EQ(exported->bytes, std::int64_t(fs::file_size(archive_)));
  const std::string other = scratch_.path() + "/other";
  const auto imported = import_cache(other, archive_, 0);
  ASSERT_TRUE(imported) << imported.error().text();
  EXPECT_EQ(imported->added.entries, 6);
  EXPECT_EQ(imported->present.entries, 0);
  EXPECT_EQ(import_cache(other, archive_, 0)->present.entries, 6);
  EXPECT_EQ(run(other), 0);
  ASSERT_TRUE(export_cache(other, archive_ + "2"));
  EXPECT_EQ(contents(archive_), contents(archive_ + "2"));
}

TEST_F(CacheCatalogTest, DamagedEntriesAreNotExported) {
  fs::resize_file(files().front(), 50);
  EXPECT_EQ(export_cache(directory_, archive_)->entries, 5);
  const std::string place = "/dev/null/archive";
  EXPECT_EQ(export_cache(directory_, place).error().code, Code::io);
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch_.path()), {}), 2);  // no part is left
}

TEST_F(CacheCatalogTest, ADamagedArchiveIsRefusedAsAWhole) {
  ASSERT_TRUE(export_cache(directory_, archive_));
  const std::string good = contents(archive_);
  const std::string other = scratch_.path() + "/other";
  for (std::size_t at = 0; at < good.size(); at += at < 64 ? 1 : 37) {
    std::string bad = good;
    bad[at] = char(bad[at] ^ 4);
    std::ofstream(archive_, std::ios::binary) << bad;
    const auto flipped = import_cache(other, archive_, 0);
    ASSERT_FALSE(flipped) << at;
    EXPECT_EQ(flipped.error().code, Code::corrupt_file);
    std::ofstream(archive_, std::ios::binary) << good.substr(0, at);
    EXPECT_FALSE(import_cache(other, archive_, 0)) << at;
  }
  std::ofstream(archive_, std::ios::binary) << good << "more";
  EXPECT_FALSE(import_cache(other, archive_, 0));
  EXPECT_EQ(import_cache(other, scratch_.path() + "/none", 0).error().code, Code::io);
  EXPECT_FALSE(fs::exists(other));
}

TEST_F(CacheCatalogTest, AnImportStaysUnderTheCap) {
  ASSERT_TRUE(export_cache(directory_, archive_));
  const std::string other = scratch_.path() + "/other";
  const std::int64_t cap = examine_cache(directory_)->bytes / 2;
  const auto imported = import_cache(other, archive_, cap);
  ASSERT_TRUE(imported) << imported.error().text();
  EXPECT_GT(imported->evicted, 0);
  EXPECT_LE(examine_cache(other)->bytes, cap);
}

}  // namespace
}  // namespace lathe::testing
