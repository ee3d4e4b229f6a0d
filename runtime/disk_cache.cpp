// Owns the look-up, the publication and the eviction of cache entries.
#include "runtime/disk_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <mutex>

#include "runtime/cache_entry.h"

namespace lathe {
namespace {

constexpr std::int64_t kStaleTemporarySeconds = 3600;

// Each process looks at the whole directory once for so many bytes of its own, and then trims to
// so many less than the cap. So 32 processes that write at once stay under it.
constexpr std::int64_t kPartUnseen = 256;
constexpr std::int64_t kPartSpare = 8;

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_ino == b.st_ino && a.st_size == b.st_size && a.st_mtim.tv_sec == b.st_mtim.tv_sec &&
         a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

}  // namespace

struct DiskCache::Shared {
  std::atomic<std::int64_t> hits = 0, misses = 0, rejects = 0, writes = 0, write_failures = 0,
                            evictions = 0, bytes_read = 0, bytes_written = 0, bytes_evicted = 0;
  std::mutex mutex;  // guards what follows
  std::string trouble;
  bool looked = false;         // at the whole directory
  std::int64_t unseen = 0;     // bytes written since
  std::int64_t in_flight = 0;  // of these, bytes whose files may not be there yet
};

DiskCache::DiskCache(CacheDirectory directory, DiskCacheOptions options)
    : directory_(std::move(directory)),
      options_(std::move(options)),
      shared_(std::make_unique<Shared>()) {}
DiskCache::DiskCache(DiskCache&&) noexcept = default;
DiskCache& DiskCache::operator=(DiskCache&&) noexcept = default;
DiskCache::~DiskCache() = default;

Result<DiskCache> DiskCache::open(const std::string& directory, DiskCacheOptions options) {
  LATHE_ASSIGN(CacheDirectory folders, CacheDirectory::open(directory, options.read_only));
  return DiskCache(std::move(folders), std::move(options));
}

std::optional<std::vector<std::byte>> DiskCache::find(std::string_view key) const {
  return read(cache_digest(key), key);
}

std::optional<std::vector<std::byte>> DiskCache::find_digest(std::string_view digest) const {
  // The name comes from a file: it must not lead anywhere else.
  if (!is_cache_digest(digest)) return {};
  return read(digest, std::nullopt);
}

std::optional<std::vector<std::byte>> DiskCache::read(std::string_view digest,
                                                      std::optional<std::string_view> key) const {
  struct stat before = {};
  auto contents = directory_.read(digest, before);
  if (!contents || (key && contents->key != *key)) {
    ++shared_->misses;
    if (!contents && contents.error().code != Code::not_found) {
      reject(digest, before, contents.error());
    }
    return {};
  }
  // File systems are often mounted without access times; the cap's order of eviction needs them.
  const timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  ::utimensat(AT_FDCWD, directory_.path_of(digest).c_str(), times, AT_SYMLINK_NOFOLLOW);
  ++shared_->hits;
  shared_->bytes_read += before.st_size;
  return std::move(contents->payload);
}

// Damage is removed, so that the entry is made anew; unless another process has just replaced it.
void DiskCache::reject(std::string_view digest, const struct stat& before, const Error& why) const {
  ++shared_->rejects;
  if (options_.log) {
    options_.log.write(LogLevel::warning,
                       LogLine("cache", "reject").field("entry", digest).field("why", why.message));
  }
  if (why.code != Code::corrupt_file || options_.read_only) return;
  const std::string path = directory_.path_of(digest);
  struct stat now = {};
  if (::lstat(path.c_str(), &now) == 0 && same_file(now, before)) ::unlink(path.c_str());
}

Result<void> DiskCache::store(std::string_view key, std::span<const std::byte> payload) const {
  if (options_.read_only) return {};
  const std::int64_t bytes = cache_entry_bytes(key, payload);
  Result<void> stored = make_room(bytes);
  if (stored) {
    stored = publish(key, payload);
    std::lock_guard lock(shared_->mutex);
    shared_->in_flight -= bytes;
  }
  if (stored) {
    ++shared_->writes;
    shared_->bytes_written += bytes;
    return {};
  }
  ++shared_->write_failures;
  if (options_.log) {
    options_.log.write(LogLevel::warning, LogLine("cache", "not-written")
                                              .field("entry", cache_digest(key))
                                              .field("why", stored.error().message));
  }
  std::lock_guard lock(shared_->mutex);
  if (shared_->trouble.empty()) shared_->trouble = stored.error().message;
  return stored;
}

Result<void> DiskCache::publish(std::string_view key, std::span<const std::byte> payload) const {
  const std::string digest = cache_digest(key);
  const std::string path = directory_.path_of(digest);
  LATHE_TRY(directory_.make_folder(digest));
  std::string temporary;
  LATHE_ASSIGN(FileDescriptor file, directory_.make_temporary(temporary));
  // Closed last of all: on a network file system that is where a full disk shows.
  const bool written = write_cache_entry(file, key, payload) && ::fsync(file.get()) == 0 &&
                       file.close() && ::rename(temporary.c_str(), path.c_str()) == 0;
  if (written) return {};
  Error error{Code::io, fmt::format("Cannot write {}: {}.", path, std::strerror(errno)), {}};
  ::unlink(temporary.c_str());
  return error;
}

Result<void> DiskCache::make_room(std::int64_t bytes) const {
  const std::int64_t target = options_.cap_bytes - options_.cap_bytes / kPartSpare;
  if (bytes > target) {
    return Error{Code::io,
                 fmt::format("An entry of {} bytes has no room in a cache of {} bytes.", bytes,
                             options_.cap_bytes),
                 {}};
  }
  Evicted evicted;
  {
    std::lock_guard lock(shared_->mutex);
    shared_->in_flight += bytes;
    shared_->unseen += bytes;
    if (shared_->looked && shared_->unseen <= options_.cap_bytes / kPartUnseen) return {};
    evicted = trim_to(std::max<std::int64_t>(target - shared_->in_flight, 0));
    shared_->looked = true;
    shared_->unseen = shared_->in_flight;
  }
  tell(evicted);  // without the lock: a hook may wait for a thread that asks for trouble()
  return {};
}

void DiskCache::trim() const {
  if (!options_.read_only) tell(trim_to(options_.cap_bytes));
}

DiskCache::Evicted DiskCache::trim_to(std::int64_t bytes) const {
  struct File {
    std::string path;
    struct stat info;
  };
  std::vector<File> files;
  std::int64_t total = 0;
  directory_.for_each_entry(
      [&](const std::string&, const std::string& path, const struct stat& info) {
        files.push_back({path, info});
        total += info.st_size;
      });
  const std::time_t now = std::time(nullptr);
  directory_.for_each_temporary([&](const std::string& path, const struct stat& info) {
    const bool stale = now - info.st_mtime > kStaleTemporarySeconds;
    if (!stale || ::unlink(path.c_str()) != 0) total += info.st_size;
  });
  if (total <= bytes) return {};
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) {
    const timespec& read_a = a.info.st_atim;
    const timespec& read_b = b.info.st_atim;
    return std::pair(read_a.tv_sec, read_a.tv_nsec) < std::pair(read_b.tv_sec, read_b.tv_nsec);
  });
  std::int64_t evictions = 0, evicted = 0;
  for (const File& file : files) {
    if (total <= bytes) break;
    const bool gone = ::unlink(file.path.c_str()) == 0;
    if (!gone && errno != ENOENT) continue;
    total -= file.info.st_size;
    if (!gone) continue;  // another process was faster
    ++evictions;
    evicted += file.info.st_size;
  }
  shared_->evictions += evictions;
  shared_->bytes_evicted += evicted;
  return {evictions, evicted, total};
}

void DiskCache::tell(const Evicted& evicted) const {
  if (evicted.entries == 0 || !options_.log) return;
  options_.log.write(LogLevel::info, LogLine("cache", "evict")
                                         .field("entries", evicted.entries)
                                         .field("bytes", evicted.bytes)
                                         .field("left_bytes", evicted.left));
}

CacheCounts DiskCache::counts() const {
  const Shared& s = *shared_;
  return {.hits = s.hits,
          .misses = s.misses,
          .rejects = s.rejects,
          .writes = s.writes,
          .write_failures = s.write_failures,
          .evictions = s.evictions,
          .bytes_read = s.bytes_read,
          .bytes_written = s.bytes_written,
          .bytes_evicted = s.bytes_evicted};
}

std::string DiskCache::trouble() const {
  std::lock_guard lock(shared_->mutex);
  return shared_->trouble;
}

}  // namespace lathe
