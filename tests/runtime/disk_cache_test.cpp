// Holds the disk cache to docs/cache.md: whatever happens to the files, a wrong answer never comes.
#include "runtime/disk_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "runtime/cache_entry.h"
#include "tests/runtime/scratch_directory.h"

namespace lathe::testing {
namespace {

namespace fs = std::filesystem;

std::vector<std::byte> payload_of(std::size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = std::byte((seed = seed * 1664525u + 1013904223u) >> 24);
  return bytes;
}

mode_t mode_of(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

int files_in(const std::string& path) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(path)) count += entry.is_regular_file();
  return count;
}

class DiskCacheTest : public ::testing::Test {
 protected:
  DiskCache open(DiskCacheOptions options = {}) {
    auto cache = DiskCache::open(directory_, std::move(options));
    EXPECT_TRUE(cache) << cache.error().text();
    return std::move(cache).value();
  }

  ScratchDirectory scratch_;
  const std::string directory_ = scratch_.path() + "/a/b";
  const std::string key_ = "key\nwith lines";
  const std::vector<std::byte> payload_ = payload_of(5000, 1);
};

TEST_F(DiskCacheTest, KeepsWhatWasStored) {
  const DiskCache cache = open();
  EXPECT_FALSE(cache.find(key_));
  ASSERT_TRUE(cache.store(key_, payload_));
  EXPECT_EQ(cache.find(key_), payload_);
  EXPECT_EQ(cache.find_digest(cache_digest(key_)), payload_);
  EXPECT_FALSE(cache.find("another key"));
  EXPECT_EQ(open().find(key_), payload_);
  ASSERT_TRUE(cache.store(key_, payload_of(10, 2)));
  EXPECT_EQ(cache.find(key_), payload_of(10, 2));
  ASSERT_TRUE(cache.store("empty", {}));
  EXPECT_EQ(cache.find("empty"), std::vector<std::byte>{});
}

TEST_F(DiskCacheTest, DigestsAreOfAllTheText) {
  EXPECT_EQ(cache_digest("a").size(), 32u);
  EXPECT_NE(cache_digest("a"), cache_digest("b"));
  const DiskCache cache = open();
  EXPECT_FALSE(cache.find_digest("../../../../etc/passwd"));
  EXPECT_FALSE(cache.find_digest(""));
}

TEST_F(DiskCacheTest, FilesAreTheOwnersOnly) {
  const mode_t old = ::umask(0);
  const DiskCache cache = open();
  ASSERT_TRUE(cache.store(key_, payload_));
  ::umask(old);
  const std::string path = cache.directory().path_of(cache_digest(key_));
  EXPECT_EQ(mode_of(path), 0600u);
  EXPECT_EQ(mode_of(fs::path(path).parent_path()), 0700u);
  EXPECT_EQ(mode_of(directory_), 0700u);
  EXPECT_EQ(mode_of(cache.directory().path()), 0700u);
}

TEST_F(DiskCacheTest, ADirectoryThatOthersMayWriteToIsRefused) {
  { open(); }
  ASSERT_EQ(::chmod(directory_.c_str(), 0770), 0);
  EXPECT_FALSE(DiskCache::open(directory_));
  ASSERT_EQ(::chmod(directory_.c_str(), 0702), 0);
  EXPECT_FALSE(DiskCache::open(directory_));
  ASSERT_EQ(::chmod(directory_.c_str(), 0755), 0);
  EXPECT_TRUE(DiskCache::open(directory_));
}

TEST_F(DiskCacheTest, AnotherUsersDirectoryIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  { open(); }
  ASSERT_EQ(::chown(directory_.c_str(), 1, 1), 0);
  const auto cache = DiskCache::open(directory_);
  ASSERT_FALSE(cache);
  EXPECT_NE(cache.error().message.find("another user"), std::string::npos);
}

TEST_F(DiskCacheTest, AFileInTheWayIsRefused) {
  std::ofstream(scratch_.path() + "/a") << "no directory";
  EXPECT_FALSE(DiskCache::open(directory_));
  EXPECT_FALSE(DiskCache::open(""));
}

TEST_F(DiskCacheTest, EveryTruncationIsAMiss) {
  const DiskCache cache = open();
  ASSERT_TRUE(cache.store(key_, payload_));
  const std::string path = cache.directory().path_of(cache_digest(key_));
  const auto size = std::int64_t(fs::file_size(path));
  for (std::int64_t length = 0; length < size; length += length < 64 ? 1 : 97) {
    ASSERT_TRUE(cache.store(key_, payload_));
    fs::resize_file(path, std::uintmax_t(length));
    EXPECT_FALSE(cache.find(key_)) << length;
    EXPECT_FALSE(fs::exists(path)) << length;  // so that it is made anew
  }
  ASSERT_TRUE(cache.store(key_, payload_));
  fs::resize_file(path, std::uintmax_t(size + 1));
  EXPECT_FALSE(cache.find(key_));
}

TEST_F(DiskCacheTest, EveryFlippedBitIsAMiss) {
  const DiskCache cache = open();
  const std::string path = cache.directory().path_of(cache_digest(key_));
  ASSERT_TRUE(cache.store(key_, payload_));
  const auto size = std::int64_t(fs::file_size(path));
  for (std::int64_t at = 0; at < size; at += at < 64 ? 1 : 61) {
    ASSERT_TRUE(cache.store(key_, payload_));
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const char byte = char(file.get() ^ (1 << (at % 8)));
    file.seekp(at);
    file.put(byte);
    file.close();
    EXPECT_FALSE(cache.find(key_)) << at;
  }
}

TEST_F(DiskCacheTest, AnEntryUnderAnotherNameIsAMiss) {
  const DiskCache cache = open();
  ASSERT_TRUE(cache.store(key_, payload_));
  ASSERT_TRUE(cache.store("other", payload_of(10, 3)));
  fs::copy_file(cache.directory().path_of(cache_digest(key_)),
                cache.directory().path_of(cache_digest("other")),
                fs::copy_options::overwrite_existing);
  EXPECT_FALSE(cache.find("other"));
  EXPECT_EQ(cache.find(key_), payload_);
}

TEST_F(DiskCacheTest, ALinkInThePlaceOfAnEntryIsAMiss) {
  const DiskCache cache = open();
  ASSERT_TRUE(cache.store(key_, payload_));
  const std::string path = cache.directory().path_of(cache_digest(key_));
  fs::rename(path, scratch_.path() + "/moved");
  fs::create_symlink(scratch_.path() + "/moved", path);
  EXPECT_FALSE(cache.find(key_));
}

TEST_F(DiskCacheTest, ProcessesThatRaceSeeWholeEntriesOnly) {
  constexpr int kProcesses = 4;
  constexpr int kRounds = 60;
  { open(); }
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto cache = DiskCache::open(directory_);
      bool good = bool(cache);
      for (int round = 0; good && round < kRounds; ++round) {
        const auto bytes = payload_of(20000, unsigned(process + 1));
        good = bool(cache->store(key_, bytes));
        const auto found = cache->find(key_);
        // Somebody's entry, whole: its bytes say whose.
        bool whole = false;
        for (int writer = 0; writer < kProcesses; ++writer) {
          whole = whole || (found && *found == payload_of(20000, unsigned(writer + 1)));
        }
        good = good && whole;
      }
      ::_exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(files_in(open().directory().path() + "/tmp"), 0);
}

TEST_F(DiskCacheTest, AKilledWriterLeavesNoEntryAndItsFileIsSwept) {
  const DiskCache cache = open();
  const auto bytes = payload_of(4 << 20, 9);  // made here: the child does nothing but write
  int killed_in_the_middle = 0;
  for (int delay = 0; delay < 30; ++delay) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (;;) static_cast<void>(cache.store(key_, bytes));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5 + delay));
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    const auto found = cache.find(key_);
    EXPECT_TRUE(!found || *found == bytes);
    killed_in_the_middle += files_in(cache.directory().path() + "/tmp") > 0;
  }
  EXPECT_GT(killed_in_the_middle, 0);
  // Young files may be at work; old ones are not.
  for (const auto& entry : fs::directory_iterator(cache.directory().path() + "/tmp")) {
    fs::last_write_time(entry, fs::file_time_type::clock::now() - std::chrono::hours(2));
  }
  std::ofstream(cache.directory().path() + "/tmp/entry.young") << "at work";
  cache.trim();
  EXPECT_EQ(files_in(cache.directory().path() + "/tmp"), 1);
}

TEST_F(DiskCacheTest, AFullDiskIsAnErrorThatLeavesNothing) {
  const DiskCache cache = open();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto stored = cache.store(key_, payload_);
    ::_exit(!stored && stored.error().code == Code::io ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(cache.find(key_));
  EXPECT_EQ(files_in(cache.directory().path() + "/tmp"), 0);
}

TEST_F(DiskCacheTest, AReadOnlyDirectoryIsAnErrorOfTheStoreOnly) {
  // Root may write everywhere, so it becomes somebody else for the length of the test.
  constexpr uid_t kSomebody = 65534;
  const bool root = ::geteuid() == 0;
  if (root) {
    ASSERT_EQ(::chown(scratch_.path().c_str(), kSomebody, kSomebody), 0);
    ASSERT_EQ(::seteuid(kSomebody), 0);
  }
  const DiskCache cache = open();
  ASSERT_TRUE(cache.store(key_, payload_));
  const std::string temporary = cache.directory().path() + "/tmp";
  EXPECT_EQ(::chmod(temporary.c_str(), 0500), 0);
  EXPECT_FALSE(cache.store("other", payload_));
  EXPECT_EQ(cache.find(key_), payload_);
  EXPECT_EQ(::chmod(temporary.c_str(), 0700), 0);
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
}

TEST_F(DiskCacheTest, ADirectoryThatVanishedIsAnErrorOfTheStoreAndAMiss) {
  const DiskCache cache = open();
  ASSERT_TRUE(cache.store(key_, payload_));
  fs::remove_all(directory_);
  EXPECT_FALSE(cache.find(key_));
  EXPECT_FALSE(cache.store(key_, payload_));
  cache.trim();
}

TEST_F(DiskCacheTest, TheCapEvictsWhatWasReadLongestAgo) {
  const DiskCache cache = open({.cap_bytes = 25000});
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(cache.store("entry " + std::to_string(i), payload_of(5000, unsigned(i))));
    const std::string path = cache.directory().path_of(cache_digest("entry " + std::to_string(i)));
    const timespec times[2] = {{1000 + i, 0}, {0, UTIME_OMIT}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  ASSERT_TRUE(cache.find("entry 0"));  // the oldest, but read just now
  ASSERT_TRUE(cache.store("entry 4", payload_of(5000, 4)));
  cache.trim();
  EXPECT_TRUE(cache.find("entry 0"));
  EXPECT_FALSE(cache.find("entry 1"));
  EXPECT_TRUE(cache.find("entry 2"));
  EXPECT_TRUE(cache.find("entry 3"));
  EXPECT_TRUE(cache.find("entry 4"));
}

TEST_F(DiskCacheTest, ForeignFilesAreLeftAloneAndNotCounted) {
  const DiskCache cache = open({.cap_bytes = 12000});
  ASSERT_TRUE(cache.store(key_, payload_));
  const std::string folder = cache.directory().folder_of(cache_digest(key_));
  const std::string names[] = {folder + "/notes.txt", folder + "/" + std::string(30, 'g'),
                               cache.directory().path() + "/README",
                               cache.directory().path() + "/tmp/theirs"};
  for (const std::string& name : names) {
    std::ofstream(name) << std::string(20000, 'x');
    fs::last_write_time(name, fs::file_time_type::clock::now() - std::chrono::hours(2));
  }
  ASSERT_TRUE(cache.store("another", payload_));
  cache.trim();
  EXPECT_TRUE(cache.find(key_));
  EXPECT_TRUE(cache.find("another"));
  for (const std::string& name : names) EXPECT_EQ(fs::file_size(name), 20000u) << name;
}

TEST_F(DiskCacheTest, AnEntryThatOthersMayWriteToIsAMiss) {
  const DiskCache cache = open();
  ASSERT_TRUE(cache.store(key_, payload_));
  ASSERT_EQ(::chmod(cache.directory().path_of(cache_digest(key_)).c_str(), 0666), 0);
  EXPECT_FALSE(cache.find(key_));
  EXPECT_EQ(cache.counts().rejects, 1);
}

TEST_F(DiskCacheTest, ReadOnlyTakesWhatIsThereAndWritesNothing) {
  EXPECT_FALSE(DiskCache::open(directory_, {.read_only = true}));
  EXPECT_FALSE(fs::exists(directory_));
  { ASSERT_TRUE(open().store(key_, payload_)); }
  const DiskCache cache = open({.cap_bytes = 100, .read_only = true});
  EXPECT_EQ(cache.find(key_), payload_);
  EXPECT_TRUE(cache.store("another", payload_));
  EXPECT_FALSE(cache.find("another"));
  const std::string path = cache.directory().path_of(cache_digest(key_));
  cache.trim();
  fs::resize_file(path, 100);
  EXPECT_FALSE(cache.find(key_));
  EXPECT_TRUE(fs::exists(path));
  EXPECT_EQ(cache.counts().writes, 0);
  EXPECT_EQ(cache.counts().rejects, 1);
}

TEST_F(DiskCacheTest, CountsWhatItDoes) {
  const DiskCache cache = open({.cap_bytes = 15000});
  static_cast<void>(cache.find(key_));
  ASSERT_TRUE(cache.store(key_, payload_));
  static_cast<void>(cache.find(key_));
  ASSERT_TRUE(cache.store("second", payload_));
  ASSERT_TRUE(cache.store("third", payload_));
  fs::resize_file(cache.directory().path_of(cache_digest("third")), 10);
  static_cast<void>(cache.find("third"));
  EXPECT_FALSE(cache.store("large", payload_of(20000, 1)));
  const CacheCounts counts = cache.counts();
  const auto bytes = cache_entry_bytes(key_, payload_);
  EXPECT_EQ(counts.hits, 1);
  EXPECT_EQ(counts.misses, 2);
  EXPECT_EQ(counts.rejects, 1);
  EXPECT_EQ(counts.writes, 3);
  EXPECT_EQ(counts.write_failures, 1);
  EXPECT_EQ(counts.evictions, 1);
  EXPECT_EQ(counts.bytes_read, bytes);
  EXPECT_GT(counts.bytes_written, 3 * std::int64_t(payload_.size()));
  EXPECT_GT(counts.bytes_evicted, 0);
  EXPECT_NE(cache.trouble().find("no room"), std::string::npos) << cache.trouble();
}

TEST_F(DiskCacheTest, TroubleIsToldToTheLog) {
  std::vector<std::string> lines;
  std::vector<std::string> notes;
  const Log log =
      Log::open([&](LogLevel, std::string_view line) { lines.emplace_back(line); }, "", notes);
  const DiskCache cache = open({.log = log});
  ASSERT_TRUE(cache.store(key_, payload_));
  fs::resize_file(cache.directory().path_of(cache_digest(key_)), 10);
  static_cast<void>(cache.find(key_));
  fs::remove_all(directory_);
  EXPECT_FALSE(cache.store(key_, payload_));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], "lathe,1,cache,reject,entry=" + cache_digest(key_) + ",why=it is cut short");
  EXPECT_TRUE(lines[1].starts_with("lathe,1,cache,not-written,entry=")) << lines[1];
  EXPECT_NE(lines[1].find("No such file"), std::string::npos) << lines[1];
}

TEST_F(DiskCacheTest, ThreadsThatWriteStayUnderTheCap) {
  const DiskCache cache = open({.cap_bytes = 1 << 20});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 30; ++i) {
        const std::string key = std::to_string(t) + " " + std::to_string(i);
        EXPECT_TRUE(cache.store(key, payload_of(20000, unsigned(i))));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::int64_t bytes = 0;
  cache.directory().for_each_entry([&](const std::string&, const std::string&,
                                       const struct stat& info) { bytes += info.st_size; });
  EXPECT_LE(bytes, 1 << 20);
  EXPECT_GT(bytes, 1 << 19);
  EXPECT_GT(cache.counts().evictions, 0);
}

}  // namespace
}  // namespace lathe::testing
