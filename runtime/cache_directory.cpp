// Owns the checks of the cache's folders and the walk through them.
#include "runtime/cache_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace lathe {
namespace {

constexpr std::string_view kTemporary = "entry.";

Error io_error(const std::string& path, const char* what) {
  return Error{Code::io, fmt::format("Cannot {} {}: {}.", what, path, std::strerror(errno)), {}};
}

Result<void> make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return {};
  return io_error(path, "create the cache directory");
}

// Ours; or root's, who could do anything with what is ours anyway, where we only read.
bool is_trusted(uid_t owner, bool read_only) {
  return owner == ::geteuid() || (read_only && owner == 0);
}

Result<void> check_private(const std::string& path, bool read_only) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) {
    Error error = io_error(path, "examine the cache directory");
    if (errno == ENOENT) error.code = Code::not_found;
    return error;
  }
  if (!S_ISDIR(info.st_mode)) {
    return Error{Code::io, fmt::format("The cache directory {} is not a directory.", path), {}};
  }
  if (!is_trusted(info.st_uid, read_only)) {
    return Error{
        Code::io, fmt::format("The cache directory {} belongs to another user.", path), {}};
  }
  if (info.st_mode & (S_IWGRP | S_IWOTH)) {
    return Error{Code::io, fmt::format("Others may write to the cache directory {}.", path), {}}
        .with("hint", fmt::format("chmod 700 {}", path));
  }
  return {};
}

// Calls visit(name, path, info) for the regular files of a directory.
template <typename Visit>
void for_each_file(const std::string& directory, Visit visit) {
  DIR* listing = ::opendir(directory.c_str());
  if (!listing) return;
  while (const dirent* entry = ::readdir(listing)) {
    const std::string path = directory + "/" + entry->d_name;
    struct stat info = {};
    if (::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
      visit(std::string(entry->d_name), path, info);
    }
  }
  ::closedir(listing);
}

}  // namespace

Result<CacheDirectory> CacheDirectory::open(const std::string& directory, bool read_only) {
  if (directory.empty()) return Error{Code::io, "No cache directory is known.", {}};
  CacheDirectory made(directory + "/v1", read_only);
  if (read_only) {
    LATHE_TRY(check_private(directory, true));
    LATHE_TRY(check_private(made.path_, true));
    return made;
  }
  for (std::size_t at = directory.find('/', 1); at != directory.npos;
       at = directory.find('/', at + 1)) {
    LATHE_TRY(make_directory(directory.substr(0, at)));
  }
  for (const std::string& path : {directory, made.path_, made.path_ + "/tmp"}) {
    LATHE_TRY(make_directory(path));
    LATHE_TRY(check_private(path, false));
  }
  return made;
}

std::string CacheDirectory::folder_of(std::string_view digest) const {
  return fmt::format("{}/{}", path_, digest.substr(0, 2));
}

std::string CacheDirectory::path_of(std::string_view digest) const {
  return fmt::format("{}/{}", folder_of(digest), digest.substr(2));
}

Result<FileDescriptor> CacheDirectory::open_entry(std::string_view digest,
                                                  struct stat& info) const {
  const std::string path = path_of(digest);
  // No waiting for whoever writes to a pipe, no following of a link.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0) {
    if (errno == ENOENT) return Error{Code::not_found, "there is no such entry", {}};
    if (errno == ELOOP) return Error{Code::corrupt_file, "a link is in its place", {}};
    return Error{Code::io, std::strerror(errno), {}};
  }
  if (::fstat(file.get(), &info) != 0) return Error{Code::io, std::strerror(errno), {}};
  if (!S_ISREG(info.st_mode)) return Error{Code::corrupt_file, "it is not a file", {}};
  if (!is_trusted(info.st_uid, read_only_) || (info.st_mode & (S_IWGRP | S_IWOTH))) {
    return Error{Code::corrupt_file, "others may write to it", {}};
  }
  return file;
}

Result<CacheContents> CacheDirectory::read(std::string_view digest, struct stat& info) const {
  info = {};
  LATHE_ASSIGN(const FileDescriptor file, open_entry(digest, info));
  LATHE_ASSIGN(CacheContents contents, read_cache_entry(file, info.st_size, CacheEntryEnd::exact));
  if (cache_digest(contents.key) != digest) {
    return Error{Code::corrupt_file, "it is another entry's", {}};
  }
  return contents;
}

Result<FileDescriptor> CacheDirectory::make_temporary(std::string& path) const {
  path = fmt::format("{}/tmp/{}XXXXXX", path_, kTemporary);
  FileDescriptor file(::mkostemp(path.data(), O_CLOEXEC));
  if (file.get() < 0) return io_error(path, "create");
  struct stat info = {};
  // Some file systems do not keep modes and say nothing.
  const bool kept = ::fchmod(file.get(), 0600) == 0 && ::fstat(file.get(), &info) == 0 &&
                    info.st_uid == ::geteuid() && (info.st_mode & 0777) == 0600;
  if (kept) return file;
  Error error{Code::io, fmt::format("{} cannot be made the user's alone.", path), {}};
  ::unlink(path.c_str());
  return error;
}

Result<void> CacheDirectory::make_folder(std::string_view digest) const {
  return make_directory(folder_of(digest));
}

void CacheDirectory::for_each_entry(const VisitEntry& visit) const {
  for (int folder = 0; folder < 256; ++folder) {
    const std::string start = fmt::format("{:02x}", folder);
    for_each_file(path_ + "/" + start,
                  [&](const std::string& name, const std::string& path, const struct stat& info) {
                    if (const std::string digest = start + name; is_cache_digest(digest)) {
                      visit(digest, path, info);
                    }
                  });
  }
}

void CacheDirectory::for_each_temporary(const VisitTemporary& visit) const {
  for_each_file(path_ + "/tmp",
                [&](const std::string& name, const std::string& path, const struct stat& info) {
                  if (name.starts_with(kTemporary)) visit(path, info);
                });
}

}  // namespace lathe
