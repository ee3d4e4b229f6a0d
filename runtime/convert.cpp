// Owns the writing of model files: beside their place, and into it when they are whole.
#include "lathe/runtime/convert.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "plan/crc32c.h"
#include "plan/file_layout.h"
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

  Result<void> run() {
    const std::string part = fmt::format("{}.{}.part", path_, ::getpid());
    file_ = FileDescriptor(::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (file_.get() < 0) return io_error(part, "create");
    Result<void> written = write();
    if (written && (!file_.close() || ::rename(part.c_str(), path_.c_str()) != 0))
      written = io_error(path_, "write");
    if (!written) ::unlink(part.c_str());
    return written;
  }

 private:
  Result<void> write() {
    // A full disk shows here, before hours of writing. Not every file system can.
    if (layout_.bytes > 0 && ::fallocate(file_.get(), 0, 0, layout_.bytes) != 0 &&
        errno != EOPNOTSUPP && errno != ENOSYS) {
      return io_error(path_, "write");
    }
    if (::ftruncate(file_.get(), layout_.bytes) != 0) return io_error(path_, "write");
    std::vector<std::uint32_t> checksums;
    for (const FilePiece& tensor : layout_.tensors) {
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

  Result<void> write_tensor(std::int64_t offset, std::span<const std::byte> bytes) {
    for (std::size_t at = 0; at < bytes.size(); at += kChunk) {
      if (options_.cancelled && options_.cancelled())
        return Error{Code::cancelled, fmt::format("'{}' was not written: cancelled", path_), {}};
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
};

}  // namespace

Result<void> convert_model(const GgufFile& file, const std::string& path,
                           const ConvertOptions& options) {
  if (options.page_bytes < 256 || options.page_bytes > 1u << 30 ||
      !std::has_single_bit(options.page_bytes)) {
    return Error{Code::invalid_argument,
                 fmt::format("pages of {} bytes are not possible: a power of two from 256 to 2^30",
                             options.page_bytes),
                 {}};
  }
  if (same_file(file.path(), path)) {
    return Error{
        Code::invalid_argument, fmt::format("'{}' is the file that is to be converted", path), {}};
  }
  LATHE_ASSIGN(FileLayout layout, file.facts().container == Container::gguf
                                      ? lay_out_p64(file, options.page_bytes, options.weights)
                                      : lay_out_gguf(file));
  return Writer(std::move(layout), path, options).run();
}

}  // namespace lathe
