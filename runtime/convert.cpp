// Owns the writing of model files: beside their place, and into it when they are whole.
#include "lathe/runtime/convert.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>

#include "plan/crc32c.h"
#include "plan/file_layout.h"
#include "plan/p64_format.h"
#include "runtime/file_descriptor.h"

namespace lathe {
namespace {

constexpr std::size_t kChunk = std::size_t{8} << 20;

Error io_error(const std::string& path, std::string_view what) {
  return Error{Code::io, fmt::format("cannot {} '{}': {}", what, path, std::strerror(errno)), {}};
}

// A map of a file that is overwritten would show the new bytes.
bool same_file(const std::string& a, const std::string& b) {
  struct stat first = {};
  struct stat second = {};
  return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

class Writer {
 public:
  Writer(FileLayout layout, const std::string& path, const ConvertOptions& options)
      : layout_(std::move(layout)), path_(path), options_(options) {}
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() {
    if (!part_.empty()) ::unlink(part_.c_str());
  }

  Result<void> run() {
    LATHE_TRY(create_part());
    LATHE_TRY(write());
    if (!file_.close() || ::rename(part_.c_str(), path_.c_str()) != 0)
      return io_error(path_, "write");
    part_.clear();
    return {};
  }

 private:
  // A name that none has: other threads write too, and an ended process can have had this one's
  // number and left its part.
  Result<void> create_part() {
    static std::atomic<unsigned> count = 0;
    while (true) {
      std::string part = fmt::format("{}.{}.{}.part", path_, ::getpid(), count++);
      file_ = FileDescriptor(::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
      if (file_.get() >= 0) {
        part_ = std::move(part);
        return {};
      }
      if (errno != EEXIST) return io_error(part, "create");
    }
  }

  Result<void> write() {
    // A full disk shows here, before hours of writing. Not every file system can.
    if (layout_.bytes > 0 && ::fallocate(file_.get(), 0, 0, layout_.bytes) != 0 &&
        errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR) {
      return io_error(path_, "write");
    }
    if (::ftruncate(file_.get(), layout_.bytes) != 0) return io_error(path_, "write");
    std::vector<std::uint32_t> checksums;
    for (const FilePiece& tensor : layout_.tensors) {
      LATHE_TRY(check_cancelled());
      LATHE_TRY(check_bytes(tensor));
      std::vector<std::byte> made;
      if (tensor.make != nullptr) {
        LATHE_ASSIGN(made, tensor.make(*tensor.tensor, tensor.bytes));
      }
      const std::span<const std::byte> bytes = tensor.make != nullptr ? made : tensor.bytes;
      LATHE_TRY(write_tensor(tensor.offset, bytes));
      if (layout_.checksums) checksums.push_back(crc32c(bytes));
    }
    if (layout_.checksums) seal(checksums);
    LATHE_TRY(write_at(0, layout_.head));
    if (::fsync(file_.get()) != 0) return io_error(path_, "write");
    return {};
  }

  Result<void> check_cancelled() const {
    if (!options_.cancelled || !options_.cancelled()) return {};
    return Error{Code::cancelled, fmt::format("'{}' was not written: cancelled", path_), {}};
  }

  // The file that is written has no checksum that would tell of the damage.
  static Result<void> check_bytes(const FilePiece& piece) {
    if (!piece.checksum) return {};
    const std::uint32_t found = crc32c(piece.bytes);
    if (found == *piece.checksum) return {};
    return Error{Code::corrupt_file,
                 fmt::format("tensor '{}' is damaged: its CRC-32C is 0x{:08x}, but its container "
                             "has 0x{:08x}",
                             piece.tensor->name, found, *piece.checksum),
                 {}};
  }

  Result<void> write_tensor(std::int64_t offset, std::span<const std::byte> bytes) {
    for (std::size_t at = 0; at < bytes.size(); at += kChunk) {
      LATHE_TRY(check_cancelled());
      const auto chunk = bytes.subspan(at, std::min(kChunk, bytes.size() - at));
      LATHE_TRY(write_at(offset + static_cast<std::int64_t>(at), chunk));
      if (options_.progress) {
        const auto done = offset + static_cast<std::int64_t>(at + chunk.size());
        options_.progress("writing", done, layout_.bytes);
      }
    }
    return {};
  }

  void seal(const std::vector<std::uint32_t>& checksums) {
    const std::size_t at = *layout_.checksums;
    const std::uint32_t head = crc32c(std::span(layout_.head).first(at));
    std::memcpy(layout_.head.data() + at, &head, sizeof head);
    std::memcpy(layout_.head.data() + at + sizeof head, checksums.data(),
                checksums.size() * sizeof head);
  }

  Result<void> write_at(std::int64_t offset, std::span<const std::byte> bytes) {
    if (::lseek(file_.get(), offset, SEEK_SET) != offset ||
        !file_.write(bytes.data(), bytes.size()))
      return io_error(path_, "write");
    return {};
  }

  FileLayout layout_;
  const std::string& path_;
  const ConvertOptions& options_;
  FileDescriptor file_;
  std::string part_;  // what is written into; empty: nothing is there to remove
};

}  // namespace

Result<void> convert_model(const GgufFile& file, const std::string& path,
                           const ConvertOptions& options) {
  if (options.page_bytes < p64::kLeastPage || options.page_bytes > p64::kMostPage ||
      !std::has_single_bit(options.page_bytes)) {
    return Error{Code::invalid_argument,
                 fmt::format("pages of {} bytes are not possible: a power of two from {} to {}",
                             options.page_bytes, p64::kLeastPage, p64::kMostPage),
                 {}};
  }
  const bool to_p64 = file.facts().container == Container::gguf;
  if (!to_p64 && options.weights != P64Weights::as_stored) {
    return Error{Code::invalid_argument, "weights can be replaced in P64 containers only", {}};
  }
  if (same_file(file.path(), path)) {
    return Error{
        Code::invalid_argument, fmt::format("'{}' is the file that is to be converted", path), {}};
  }
  // A file's head and a tensor of another kind are made in memory.
  try {
    LATHE_ASSIGN(FileLayout layout, to_p64 ? lay_out_p64(file, options.page_bytes, options.weights)
                                           : lay_out_gguf(file));
    return Writer(std::move(layout), path, options).run();
  } catch (const std::bad_alloc&) {
    return Error{
        Code::out_of_memory, fmt::format("not enough memory to convert '{}'", file.path()), {}};
  }
}

}  // namespace lathe
