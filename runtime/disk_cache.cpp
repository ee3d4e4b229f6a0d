// Owns the files of the cache: their layout, their checks, and their publication.
#include "runtime/disk_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lathe {
namespace {

constexpr char kMagic[8] = {'L', 'A', 'T', 'H', 'E', 'K', '1', '\n'};
constexpr std::int64_t kStaleTemporarySeconds = 3600;
// No kernel comes near this; a larger length field is damage.
constexpr std::uint64_t kMaxEntry = std::uint64_t{1} << 28;

// An entry: this header, the key's text, the payload.
struct Header {
  char magic[8];
  std::uint64_t key_bytes;
  std::uint64_t payload_bytes;
  std::uint64_t checksum;  // xxh3-64 of key and payload
};

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  ~FileDescriptor() { close(); }
  int get() const { return fd_; }
  bool close() {
    const bool closed = fd_ < 0 || ::close(fd_) == 0;
    fd_ = -1;
    return closed;
  }

 private:
  int fd_;
};

std::uint64_t checksum(std::string_view key, std::span<const std::byte> payload) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, key.data(), key.size());
  XXH3_64bits_update(&state, payload.data(), payload.size());
  return XXH3_64bits_digest(&state);
}

Error io_error(const std::string& path, const char* what) {
  return Error{Code::io, fmt::format("Cannot {} {}: {}.", what, path, std::strerror(errno)), {}};
}

bool write_all(int fd, const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(fd, at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    at += written;
    size -= std::size_t(written);
  }
  return true;
}

bool read_all(int fd, void* data, std::size_t size) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = ::read(fd, at, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    size -= std::size_t(got);
  }
  return true;
}

Result<void> make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return {};
  return io_error(path, "create the cache directory");
}

// What somebody else could have written would run on the GPU in this user's name.
Result<void> check_private(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return io_error(path, "examine the cache directory");
  if (!S_ISDIR(info.st_mode)) {
    return Error{Code::io, fmt::format("The cache directory {} is not a directory.", path), {}};
  }
  if (info.st_uid != ::geteuid()) {
    return Error{
        Code::io, fmt::format("The cache directory {} belongs to another user.", path), {}};
  }
  if (info.st_mode & (S_IWGRP | S_IWOTH)) {
    return Error{Code::io, fmt::format("Others may write to the cache directory {}.", path), {}}
        .with("hint", fmt::format("chmod 700 {}", path));
  }
  return {};
}

// Calls visit(path, info) for the regular files of a directory.
template <typename Visit>
void for_each_file(const std::string& directory, Visit visit) {
  DIR* listing = ::opendir(directory.c_str());
  if (!listing) return;
  while (const dirent* entry = ::readdir(listing)) {
    const std::string path = directory + "/" + entry->d_name;
    struct stat info = {};
    if (::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) visit(path, info);
  }
  ::closedir(listing);
}

}  // namespace

Result<DiskCache> DiskCache::open(const std::string& directory, std::int64_t cap_bytes) {
  if (directory.empty()) return Error{Code::io, "No cache directory is known.", {}};
  for (std::size_t at = directory.find('/', 1); at != directory.npos;
       at = directory.find('/', at + 1)) {
    LATHE_TRY(make_directory(directory.substr(0, at)));
  }
  const std::string versioned = directory + "/v1";
  LATHE_TRY(make_directory(directory));
  LATHE_TRY(check_private(directory));
  LATHE_TRY(make_directory(versioned));
  LATHE_TRY(check_private(versioned));
  LATHE_TRY(make_directory(versioned + "/tmp"));
  LATHE_TRY(check_private(versioned + "/tmp"));
  return DiskCache(versioned, cap_bytes);
}

std::string DiskCache::digest(std::string_view key) {
  const XXH128_hash_t hash = XXH3_128bits(key.data(), key.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string DiskCache::path_of(std::string_view digest) const {
  return fmt::format("{}/{}/{}", directory_, digest.substr(0, 2), digest.substr(2));
}

std::optional<std::vector<std::byte>> DiskCache::find(std::string_view key) const {
  return read(digest(key), key);
}

std::optional<std::vector<std::byte>> DiskCache::find_digest(std::string_view digest) const {
  // The name comes from a file: it must not lead anywhere else.
  if (digest.size() != 32 || digest.find_first_not_of("0123456789abcdef") != digest.npos) return {};
  return read(digest, std::nullopt);
}

std::optional<std::vector<std::byte>> DiskCache::read(std::string_view name,
                                                      std::optional<std::string_view> key) const {
  const std::string path = path_of(name);
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0) return {};
  struct stat before = {};
  if (::fstat(file.get(), &before) != 0 || !S_ISREG(before.st_mode)) return {};

  Header header = {};
  std::string stored_key;
  std::vector<std::byte> payload;
  const auto size = std::uint64_t(before.st_size);
  const bool good = [&] {
    if (!read_all(file.get(), &header, sizeof header)) return false;
    if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return false;
    if (header.key_bytes > kMaxEntry || header.payload_bytes > kMaxEntry) return false;
    if (size != sizeof header + header.key_bytes + header.payload_bytes) return false;
    stored_key.resize(header.key_bytes);
    payload.resize(header.payload_bytes);
    return read_all(file.get(), stored_key.data(), stored_key.size()) &&
           read_all(file.get(), payload.data(), payload.size()) &&
           checksum(stored_key, payload) == header.checksum && digest(stored_key) == name;
  }();
  if (!good) {
    // Removed, so that it is made anew; unless another process has just replaced it.
    struct stat now = {};
    if (::lstat(path.c_str(), &now) == 0 && now.st_ino == before.st_ino &&
        now.st_size == before.st_size && now.st_mtim.tv_sec == before.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == before.st_mtim.tv_nsec) {
      ::unlink(path.c_str());
    }
    return {};
  }
  if (key && stored_key != *key) return {};
  // File systems are often mounted without access times; the cap's order of eviction needs them.
  const timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  ::futimens(file.get(), times);
  return payload;
}

Result<void> DiskCache::store(std::string_view key, std::span<const std::byte> payload) const {
  const std::string name = digest(key);
  const std::string path = path_of(name);
  LATHE_TRY(make_directory(path.substr(0, path.rfind('/'))));

  std::string temporary = directory_ + "/tmp/XXXXXX";
  FileDescriptor file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (file.get() < 0) return io_error(temporary, "create");
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.key_bytes = key.size();
  header.payload_bytes = payload.size();
  header.checksum = checksum(key, payload);
  const bool written = ::fchmod(file.get(), 0600) == 0 &&
                       write_all(file.get(), &header, sizeof header) &&
                       write_all(file.get(), key.data(), key.size()) &&
                       write_all(file.get(), payload.data(), payload.size()) &&
                       ::fsync(file.get()) == 0 && file.close();
  if (!written || ::rename(temporary.c_str(), path.c_str()) != 0) {
    Error error = io_error(path, "write");
    ::unlink(temporary.c_str());
    return error;
  }
  return {};
}

void DiskCache::trim() const {
  struct File {
    std::string path;
    std::int64_t bytes;
    timespec read;
  };
  std::vector<File> files;
  std::int64_t total = 0;
  for (int folder = 0; folder < 256; ++folder) {
    for_each_file(fmt::format("{}/{:02x}", directory_, folder),
                  [&](const std::string& path, const struct stat& info) {
                    files.push_back({path, info.st_size, info.st_atim});
                    total += info.st_size;
                  });
  }
  // What a killed process left behind.
  const std::time_t now = std::time(nullptr);
  for_each_file(directory_ + "/tmp", [&](const std::string& path, const struct stat& info) {
    if (now - info.st_mtime > kStaleTemporarySeconds) ::unlink(path.c_str());
  });
  if (total <= cap_) return;
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) {
    return std::pair(a.read.tv_sec, a.read.tv_nsec) < std::pair(b.read.tv_sec, b.read.tv_nsec);
  });
  for (const File& file : files) {
    if (total <= cap_) break;
    if (::unlink(file.path.c_str()) == 0) total -= file.bytes;
  }
}

}  // namespace lathe
