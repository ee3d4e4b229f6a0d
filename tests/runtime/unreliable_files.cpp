// Owns the replacements of open(), read(), write(), fsync() and rename().
#include "tests/runtime/unreliable_files.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <string>

namespace lathe::testing {
namespace {

std::atomic<bool> g_network = false;
std::atomic<long> g_disk_left = -1;
std::atomic<int> g_slow_microseconds = 0, g_stale_per_mille = 0, g_stale_answers = 0;
std::atomic<bool> g_late_renames = false;
std::atomic<unsigned> g_state = 1;
std::mutex g_mutex;  // guards the rename on its way
std::string g_from, g_to;

template <typename Function>
Function* next_function(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

unsigned draw(unsigned limit) {
  unsigned x = g_state += 0x9e3779b9u;
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return (x ^ (x >> 16)) % limit;
}

void take_time() {
  if (const int most = g_slow_microseconds; most > 0) ::usleep(draw(unsigned(most)) + 1);
}

int rename_now(const char* from, const char* to) {
  static auto* const next = next_function<int(const char*, const char*)>("rename");
  return next(from, to);
}

// What a call to the network may come to.
bool is_stale() {
  if (!g_network) return false;
  if (draw(3) == 0) settle_files();
  if (int(draw(1000)) >= g_stale_per_mille) return false;
  ++g_stale_answers;
  errno = ESTALE;
  return true;
}

}  // namespace

void set_file_temper(const FileTemper& temper) {
  g_disk_left = temper.disk_bytes;
  g_slow_microseconds = temper.slow_microseconds;
  g_stale_per_mille = temper.stale_per_mille;
  g_late_renames = temper.late_renames;
  g_state = temper.seed;
  g_network = temper.stale_per_mille > 0 || temper.late_renames;
}

void settle_files() {
  const std::lock_guard lock(g_mutex);
  if (!g_from.empty()) rename_now(g_from.c_str(), g_to.c_str());
  g_from.clear();
}

int stale_answers() {
  return g_stale_answers;
}

}  // namespace lathe::testing

using namespace lathe::testing;

extern "C" int open(const char* path, int flags, ...) {
  static auto* const next = next_function<int(const char*, int, ...)>("open");
  std::va_list arguments;
  va_start(arguments, flags);
  const int mode = flags & O_CREAT ? va_arg(arguments, int) : 0;
  va_end(arguments);
  take_time();
  return is_stale() ? -1 : next(path, flags, mode);
}

extern "C" ssize_t read(int file, void* data, std::size_t size) {
  static auto* const next = next_function<ssize_t(int, void*, std::size_t)>("read");
  return is_stale() ? -1 : next(file, data, size);
}

extern "C" ssize_t write(int file, const void* data, std::size_t size) {
  static auto* const next = next_function<ssize_t(int, const void*, std::size_t)>("write");
  take_time();
  if (is_stale()) return -1;
  if (g_disk_left >= 0) {
    // What still fits is written, as a file system does.
    size = std::min(size, std::size_t(g_disk_left.load()));
    if (size == 0) {
      errno = ENOSPC;
      return -1;
    }
    g_disk_left -= long(size);
  }
  return next(file, data, size);
}

extern "C" int fsync(int file) {
  static auto* const next = next_function<int(int)>("fsync");
  take_time();
  return is_stale() ? -1 : next(file);
}

extern "C" int rename(const char* from, const char* to) noexcept {
  take_time();
  if (is_stale()) return -1;
  if (!g_late_renames) return rename_now(from, to);
  settle_files();
  const std::lock_guard lock(g_mutex);
  g_from = from;
  g_to = to;
  return 0;
}
