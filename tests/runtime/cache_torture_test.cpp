// Tortures the disk cache: processes that start cold on the same keys are killed at any instant,
// run into full, slow and read-only disks and file systems of a network, and meet damaged and
// foreign files. Each that lives must have loaded the right kernels and heard of no error, and the
// cache must stay under its cap.
//
// Its own executable: unreliable_files.cpp replaces functions of it. --seconds=N tortures for
// longer.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <random>
#include <thread>

#include "runtime/cache_entry.h"
#include "runtime/module_map.h"
#include "tests/runtime/fake_state.h"
#include "tests/runtime/scratch_directory.h"
#include "tests/runtime/unreliable_files.h"

namespace {
int g_seconds = 4;
}  // namespace

namespace lathe::testing {
namespace {

namespace fs = std::filesystem;
using Random = std::mt19937;

constexpr int kKeys = 600;
constexpr int kKeysOfOne = 48;            // of a process, where many start
constexpr int kProcesses = 32;            // that the cache promises to keep under its cap
constexpr std::int64_t kCap = 400 << 10;  // less than what all keys take
constexpr int kSomebody = 65534;          // who is not root, and may not write to what is read-only

int below(Random& random, int limit) {
  return int(random() % unsigned(limit));
}

KernelKey key_of(int i) {
  KernelKey key{.type = KernelType::gemv, .format = Format::q8_0};
  key.k = 256;
  key.n = 64 * (i + 1);
  return key;
}

// The PTX of each key is its own, in text and in length.
class TortureToolchain final : public Toolchain {
 public:
  static std::string ptx_of(const KernelKey& key) {
    Random random(unsigned(key.n));
    std::string text = key.text() + "\n";
    for (int length = 40 + below(random, 360); length > 0; --length) {
      text += char('a' + below(random, 26));
    }
    return text;
  }

  Result<void> covers(const KernelKey& key, Route route) const override {
    return fake_.covers(key, route);
  }
  Result<std::string> compiler(Route route) const override { return fake_.compiler(route); }
  std::string fingerprint() const override { return fake_.fingerprint(); }
  Result<Ptx> emit(const KernelKey& key, const Target& target, Route route) const override {
    LATHE_ASSIGN(Ptx ptx, fake_.emit(key, target, route));
    ptx.text = ptx_of(key);
    return ptx;
  }
  const Assembler& assembler() const override { return fake_.assembler(); }

 private:
  FakeToolchain fake_;
};

// Of all processes, in memory that they share.
struct Totals {
  std::atomic<std::int64_t> finished = 0, hits = 0, rejects = 0, writes = 0, write_failures = 0,
                            evictions = 0, stale_answers = 0;
};

struct Start {
  std::int64_t cap = kCap;
  bool read_only = false;
  FileTemper files = {};
  bool all_from_disk = false;  // is demanded
  int first_key = 0, keys = kKeys;
};

int complain(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  return 1;
}

// What a program does that starts, with the exit code of it.
int cold_start(const std::string& directory, const Start& start, Totals& totals) {
  set_file_temper(start.files);
  const FakeDriver fake;
  const auto context = Context::open(fake.table(), nullptr, 0);
  const TortureToolchain toolchain;
  const auto cache =
      DiskCache::open(directory, {.cap_bytes = start.cap, .read_only = start.read_only});
  ModuleMap map(*context, toolchain, cache ? &*cache : nullptr, {Route::text});
  std::vector<KernelKey> keys;
  for (int i = 0; i < start.keys; ++i) keys.push_back(key_of((start.first_key + i) % kKeys));
  if (const auto prepared = map.prepare(keys, nullptr); !prepared) {
    return complain("an error surfaced: " + Result<void>(prepared).error().text());
  }
  for (const KernelKey& key : keys) {
    const auto kernel = map.get(key);
    if (!kernel) return complain("an error surfaced: " + kernel.error().text());
    const std::string& loaded = reinterpret_cast<FakeLibrary*>((*kernel)->library)->text;
    if (loaded != TortureToolchain::ptx_of(key)) {
      return complain("a wrong kernel was loaded for " + key.text() + ": " + loaded);
    }
  }
  if (start.all_from_disk && map.counts().built > 0) {
    return complain("kernels were built that the cache should have");
  }
  if (cache) {
    const CacheCounts counts = cache->counts();
    totals.hits += counts.hits;
    totals.rejects += counts.rejects;
    totals.writes += counts.writes;
    totals.write_failures += counts.write_failures;
    totals.evictions += counts.evictions;
  }
  settle_files();
  totals.stale_answers += stale_answers();
  ++totals.finished;
  return 0;
}

// Slow, forgetful and late, as differs from process to process.
FileTemper network(Random& random) {
  return {.slow_microseconds = 1 + below(random, 400),
          .stale_per_mille = 1 + below(random, 60),
          .late_renames = below(random, 2) == 0,
          .seed = unsigned(random())};
}

class CacheTortureTest : public ::testing::Test {
 protected:
  CacheTortureTest() {
    void* shared =
        ::mmap(nullptr, sizeof(Totals), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    totals_ = new (shared) Totals;
    if (::geteuid() == 0) {
      root_ =
          ::chown(scratch_.path().c_str(), kSomebody, kSomebody) == 0 && ::seteuid(kSomebody) == 0;
    }
  }
  ~CacheTortureTest() override {
    protect(false);
    if (root_) static_cast<void>(::seteuid(0));
    ::munmap(totals_, sizeof(Totals));
  }

  pid_t start(const Start& start) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(cold_start(directory_, start, *totals_));
    return child;
  }
  int run(const Start& wanted) {
    int status = -1;
    ::waitpid(start(wanted), &status, 0);
    return status;
  }

  // As many at once as the cache bears; some are killed, at any instant.
  void round(Random& random, bool damage, bool over_network = false) {
    std::vector<pid_t> children;
    std::vector<bool> doomed;
    for (int i = 0; i < kProcesses; ++i) {
      Start wanted;
      wanted.first_key = below(random, kKeys);
      wanted.keys = kKeysOfOne;
      const int kind = over_network ? 3 : below(random, 8);
      if (kind == 0) wanted.files.disk_bytes = below(random, 20000);
      if (kind == 1) wanted.files.slow_microseconds = 1 + below(random, 400);
      if (kind == 2) wanted.read_only = true;
      if (kind == 3) wanted.files = network(random);
      children.push_back(start(wanted));
      ASSERT_GT(children.back(), 0);
      doomed.push_back(below(random, 2) == 0);
    }
    for (std::size_t i = 0; i < children.size(); ++i) {
      if (damage) spoil(random);
      EXPECT_LE(bytes(), kCap);
      if (!doomed[i]) continue;
      std::this_thread::sleep_for(std::chrono::microseconds(below(random, 20000)));
      ::kill(children[i], SIGKILL);
    }
    for (std::size_t i = 0; i < children.size(); ++i) {
      int status = -1;
      ASSERT_EQ(::waitpid(children[i], &status, 0), children[i]);
      const bool killed = doomed[i] && WIFSIGNALED(status);
      killed_ += killed;
      EXPECT_TRUE(killed || status == 0) << status;
    }
    EXPECT_LE(bytes(), kCap);
    // An hour has passed for what the killed left behind.
    std::error_code gone;
    for (const auto& entry : fs::directory_iterator(directory_ + "/v1/tmp", gone)) {
      fs::last_write_time(entry, fs::file_time_type::clock::now() - std::chrono::hours(2), gone);
    }
  }

  std::vector<fs::path> entries() const {
    std::vector<fs::path> paths;
    std::error_code gone;
    for (const auto& entry : fs::recursive_directory_iterator(directory_, gone)) {
      const std::string name = entry.path().filename();
      if (is_cache_digest("00" + name)) paths.push_back(entry.path());
    }
    return paths;
  }
  std::int64_t bytes() const {
    std::int64_t total = 0;
    std::error_code gone;
    for (const fs::path& path : entries()) {
      if (!fs::is_regular_file(fs::symlink_status(path, gone))) continue;
      const auto size = fs::file_size(path, gone);
      if (!gone) total += std::int64_t(size);
    }
    return total;
  }

  // One file is damaged, or replaced by another's. What is gone meanwhile is left so.
  void spoil(Random& random) {
    const auto paths = entries();
    if (paths.empty()) return;
    const fs::path& victim = paths[std::size_t(below(random, int(paths.size())))];
    const fs::path& other = paths[std::size_t(below(random, int(paths.size())))];
    std::error_code gone;
    switch (below(random, 9)) {
      case 0:
      case 1:
      case 2: {
        std::fstream file(victim, std::ios::in | std::ios::out | std::ios::binary);
        const auto size = fs::file_size(victim, gone);
        if (!file || gone || size == 0) return;
        const auto at = std::streamoff(below(random, int(size)));
        file.seekg(at);
        const int byte = file.get();
        file.seekp(at);
        file.put(char(byte ^ (1 << below(random, 8))));
        break;
      }
      case 3:
        fs::resize_file(victim, std::uintmax_t(below(random, 400)), gone);
        break;
      case 4:
        fs::rename(victim, other, gone);
        break;
      case 5:
        fs::remove(victim, gone);
        fs::create_symlink(other, victim, gone);
        break;
      case 6:
        ::chmod(victim.c_str(), 0666);
        break;
      case 7:
        fs::remove_all(victim.parent_path(), gone);
        break;
      default:
        std::ofstream(victim, std::ios::binary) << "somebody else's";
        std::ofstream(victim.parent_path() / "theirs") << "left alone";
    }
  }

  // Makes every folder of the cache read-only, or writable again.
  void protect(bool on) {
    std::vector<fs::path> folders = {directory_};
    std::error_code gone;
    for (const auto& entry : fs::recursive_directory_iterator(directory_, gone)) {
      if (entry.is_directory(gone)) folders.push_back(entry.path());
    }
    for (const fs::path& folder : folders) ::chmod(folder.c_str(), on ? 0500 : 0700);
  }

  ScratchDirectory scratch_;
  const std::string directory_ = scratch_.path() + "/cache";
  Totals* totals_ = nullptr;
  bool root_ = false;
  int killed_ = 0;
};

TEST_F(CacheTortureTest, NoWrongKernelNoErrorAndNoByteTooMuch) {
  Random random(20261129);
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(g_seconds);
  const auto last = end + std::chrono::seconds(60);  // on a machine that has other work
  const auto all_happened = [&] {
    return killed_ > 0 && totals_->hits > 0 && totals_->rejects > 0 && totals_->writes > 0 &&
           totals_->write_failures > 0 && totals_->evictions > 0;
  };
  int rounds = 0;
  for (; (Clock::now() < end || (!all_happened() && Clock::now() < last)) && !HasFailure();
       ++rounds) {
    if (rounds % 4 == 2) fs::remove_all(directory_);
    round(random, rounds % 4 != 0);
  }
  EXPECT_EQ(run({}), 0);
  EXPECT_LE(bytes(), kCap);
  // What is damaged has been made anew: with room for all, a second start builds nothing.
  constexpr std::int64_t kRoom = 1 << 20;
  EXPECT_EQ(run({.cap = kRoom}), 0);
  EXPECT_EQ(run({.cap = kRoom, .all_from_disk = true}), 0);
  EXPECT_TRUE(all_happened()) << "some torture did not happen";
  std::printf(
      "%d rounds, %lld processes finished and %d killed; entries: %lld read, %lld written, %lld "
      "rejected, %lld evicted, %lld not written\n",
      rounds, static_cast<long long>(totals_->finished), killed_,
      static_cast<long long>(totals_->hits), static_cast<long long>(totals_->writes),
      static_cast<long long>(totals_->rejects), static_cast<long long>(totals_->evictions),
      static_cast<long long>(totals_->write_failures));
}

TEST_F(CacheTortureTest, ANetworkFileSystemServesNoWrongKernelAndNoError) {
  Random random(20261130);
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds((g_seconds + 1) / 2);
  int rounds = 0;
  for (; (Clock::now() < end || rounds < 3) && !HasFailure(); ++rounds)
    round(random, rounds % 2 != 0, true);
  EXPECT_GT(totals_->stale_answers, 0);
  EXPECT_GT(totals_->write_failures, 0);
  EXPECT_GT(totals_->hits, 0);
  constexpr std::int64_t kRoom = 1 << 20;
  EXPECT_EQ(run({.cap = kRoom}), 0);
  EXPECT_EQ(run({.cap = kRoom, .all_from_disk = true}), 0);
  std::printf(
      "%d rounds over a network, %lld processes finished and %d killed; %lld stale answers\n",
      rounds, static_cast<long long>(totals_->finished), killed_,
      static_cast<long long>(totals_->stale_answers));
}

TEST_F(CacheTortureTest, AReadOnlyFolderIsReadAndNotWritten) {
  constexpr std::int64_t kRoom = 1 << 20;
  ASSERT_EQ(run({.cap = kRoom}), 0);
  const auto before = entries();
  fs::resize_file(before[0], 10);
  fs::resize_file(before[1], 10);
  protect(true);
  EXPECT_EQ(run({.cap = kRoom}), 0);
  EXPECT_GT(totals_->write_failures, 0);
  EXPECT_EQ(entries(), before);
  EXPECT_EQ(run({.cap = kRoom, .read_only = true}), 0);
  protect(false);
  EXPECT_EQ(run({.cap = kRoom}), 0);
  EXPECT_EQ(run({.cap = kRoom, .all_from_disk = true}), 0);
}

TEST_F(CacheTortureTest, AFullDiskKeepsNothingAndFailsNothing) {
  for (long left : {0L, 1L, 100L, 2000L}) EXPECT_EQ(run({.files = {.disk_bytes = left}}), 0);
  EXPECT_GT(totals_->write_failures, 3 * kKeys);
  EXPECT_TRUE(fs::is_empty(directory_ + "/v1/tmp"));
}

}  // namespace
}  // namespace lathe::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--seconds=", 10) == 0) g_seconds = std::atoi(argv[i] + 10);
  }
  return RUN_ALL_TESTS();
}
