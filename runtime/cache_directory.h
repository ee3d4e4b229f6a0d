// Owns the folders of the disk cache: their making, whose they must be, and the names in them.
//
// Below the cache's directory: v1/<2 hex digits>/<30 hex digits>, an entry each, and
// v1/tmp/entry.*, those being written. Any other file is somebody else's and is neither read,
// counted nor removed.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "lathe/codegen/result.h"
#include "runtime/cache_entry.h"
#include "runtime/file_descriptor.h"

namespace lathe {

class CacheDirectory {
 public:
  // Makes the folders where they are missing, unless `read_only`. Refuses what is not a folder of
  // this user's (or root's, where it is only read) and what others may write to: its files would
  // run on the GPU in the user's name.
  static Result<CacheDirectory> open(const std::string& directory, bool read_only);

  // With the version folder: .../v1.
  const std::string& path() const { return path_; }
  std::string path_of(std::string_view digest) const;
  std::string folder_of(std::string_view digest) const;

  // Opens an entry for reading, with what fstat says of it. Code::not_found: there is none;
  // Code::corrupt_file: something else is in its place, or others may write to it.
  Result<FileDescriptor> open_entry(std::string_view digest, struct stat& info) const;
  // Reads an entry and checks all of it, its name included. `info` as above; all zero where it
  // could not be opened.
  Result<CacheContents> read(std::string_view digest, struct stat& info) const;
  // A new file of the user's alone in tmp; `path` is set to its name.
  Result<FileDescriptor> make_temporary(std::string& path) const;
  // Makes the folder of an entry where it is missing.
  Result<void> make_folder(std::string_view digest) const;

  using VisitEntry =
      std::function<void(const std::string& digest, const std::string& path, const struct stat&)>;
  using VisitTemporary = std::function<void(const std::string& path, const struct stat&)>;
  void for_each_entry(const VisitEntry& visit) const;
  void for_each_temporary(const VisitTemporary& visit) const;

 private:
  CacheDirectory(std::string path, bool read_only)
      : path_(std::move(path)), read_only_(read_only) {}

  std::string path_;
  bool read_only_;
};

}  // namespace lathe
