// Owns the one file that carries a cache to another machine: a header, then entries as they are.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "runtime/cache_entry.h"
#include "runtime/open_cache.h"

namespace lathe {
namespace {

constexpr char kMagic[8] = {'L', 'A', 'T', 'H', 'E', 'X', '1', '\n'};

struct Header {
  char magic[8];
  std::uint64_t entries;
  std::uint64_t bytes;  // of the whole file
};

Error io_error(const std::string& file, const char* what) {
  return Error{Code::io, fmt::format("Cannot {} {}: {}.", what, file, std::strerror(errno)), {}};
}

Error damaged(const std::string& file, std::string_view why) {
  return Error{
      Code::corrupt_file, fmt::format("{} is no undamaged export of a cache: {}.", file, why), {}};
}

// Calls visit(contents, bytes) for each entry, in order, once the archive has been opened.
class Archive {
 public:
  static Result<Archive> open(const std::string& path) {
    Archive archive;
    archive.path_ = path;
    archive.file_ = FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info = {};
    if (archive.file_.get() < 0 || ::fstat(archive.file_.get(), &info) != 0) {
      return io_error(path, "read");
    }
    Header& header = archive.header_;
    if (!archive.file_.read(&header, sizeof header) ||
        std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
      return damaged(path, "it does not begin as one does");
    }
    if (header.bytes != std::uint64_t(info.st_size)) {
      return damaged(path, fmt::format("it has {} bytes of {}", info.st_size, header.bytes));
    }
    return archive;
  }

  template <typename Visit>
  Result<void> for_each(Visit visit) const {
    if (::lseek(file_.get(), sizeof(Header), SEEK_SET) < 0) return io_error(path_, "read");
    std::int64_t left = std::int64_t(header_.bytes) - std::int64_t(sizeof(Header));
    for (std::uint64_t i = 0; i < header_.entries; ++i) {
      auto contents = read_cache_entry(file_, left, CacheEntryEnd::open);
      if (!contents) {
        return damaged(path_, fmt::format("of entry {} of {}, {}", i + 1, header_.entries,
                                          contents.error().message));
      }
      const std::int64_t bytes = cache_entry_bytes(contents->key, contents->payload);
      left -= bytes;
      visit(*contents, bytes);
    }
    if (left != 0) return damaged(path_, "something follows its entries");
    return {};
  }

 private:
  std::string path_;
  FileDescriptor file_;
  Header header_ = {};
};

Result<CacheAmount> write_archive(const CacheDirectory& cache, const FileDescriptor& file,
                                  const std::string& path) {
  std::vector<std::string> digests;
  cache.for_each_entry([&](const std::string& digest, const std::string&, const struct stat&) {
    digests.push_back(digest);
  });
  std::sort(digests.begin(), digests.end());
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.bytes = sizeof header;
  if (!file.write(&header, sizeof header)) return io_error(path, "write");
  for (const std::string& digest : digests) {
    struct stat info = {};
    const auto contents = cache.read(digest, info);
    if (!contents) continue;  // damaged, or evicted meanwhile
    if (!write_cache_entry(file, contents->key, contents->payload)) return io_error(path, "write");
    ++header.entries;
    header.bytes += std::uint64_t(info.st_size);
  }
  // Now that they are known.
  if (::lseek(file.get(), 0, SEEK_SET) != 0 || !file.write(&header, sizeof header) ||
      ::fsync(file.get()) != 0) {
    return io_error(path, "write");
  }
  return CacheAmount{std::int64_t(header.entries), std::int64_t(header.bytes)};
}

}  // namespace

Result<DiskCache> open_cache_to_change(const std::string& directory, std::int64_t cap_bytes) {
  const CacheSettings settings = cache_settings();
  const std::string& path = directory.empty() ? settings.directory : directory;
  return DiskCache::open(path, {.cap_bytes = cap_bytes ? cap_bytes : settings.cap_bytes});
}

Result<CacheAmount> export_cache(const std::string& directory, const std::string& file) {
  LATHE_ASSIGN(const CacheDirectory cache, open_cache_to_read(directory));
  // Beside its place, so that nobody takes half of it for the whole.
  const std::string part = fmt::format("{}.{}.part", file, ::getpid());
  FileDescriptor descriptor(::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (descriptor.get() < 0) return io_error(part, "create");
  Result<CacheAmount> written = write_archive(cache, descriptor, file);
  if (written && (!descriptor.close() || ::rename(part.c_str(), file.c_str()) != 0)) {
    written = io_error(file, "write");
  }
  if (!written) ::unlink(part.c_str());
  return written;
}

Result<CacheImport> import_cache(const std::string& directory, const std::string& file,
                                 std::int64_t cap_bytes) {
  LATHE_ASSIGN(const Archive archive, Archive::open(file));
  LATHE_TRY(archive.for_each([](const CacheContents&, std::int64_t) {}));
  LATHE_ASSIGN(const DiskCache cache, open_cache_to_change(directory, cap_bytes));
  CacheImport result;
  Result<void> stored;
  LATHE_TRY(archive.for_each([&](const CacheContents& contents, std::int64_t bytes) {
    if (!stored) return;
    struct stat info = {};
    const bool there(cache.directory().read(cache_digest(contents.key), info));
    if (!there) stored = cache.store(contents.key, contents.payload);
    if (!stored) return;
    CacheAmount& amount = there ? result.present : result.added;
    ++amount.entries;
    amount.bytes += bytes;
  }));
  if (!stored) return std::move(stored).error();
  result.evicted = cache.counts().evictions;
  return result;
}

}  // namespace lathe
