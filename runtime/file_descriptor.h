// Owns an open file, and the reading and writing of whole blocks of it.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <utility>

namespace lathe {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() { close(); }

  int get() const { return fd_; }
  // Leaves the file open.
  void release() { fd_ = -1; }
  bool close() {
    const bool closed = fd_ < 0 || ::close(fd_) == 0;
    fd_ = -1;
    return closed;
  }

  // False, with errno, when not all was written.
  bool write(const void* data, std::size_t size) const {
    const char* at = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t written = ::write(fd_, at, size);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      at += written;
      size -= std::size_t(written);
    }
    return true;
  }
  // False when less was there; errno is 0 if the file just ends.
  bool read(void* data, std::size_t size) const {
    char* at = static_cast<char*>(data);
    while (size > 0) {
      errno = 0;
      const ssize_t got = ::read(fd_, at, size);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      at += got;
      size -= std::size_t(got);
    }
    return true;
  }

 private:
  int fd_;
};

}  // namespace lathe
