// Feeds the reader of cache entries and the import of archives bytes; and, because a checksum keeps
// most of those out, entries whose checksum is right and whose key and payload are the input's.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <span>

#include "lathe/runtime/cache.h"
#include "runtime/cache_entry.h"
#include "runtime/cached_kernel.h"
#include "tests/fuzz/fuzzing.h"

using namespace lathe;

namespace {

class MemoryFile {
 public:
  MemoryFile() : file_(::memfd_create("fuzzed", 0)) {}
  const FileDescriptor& file() const { return file_; }
  void write(std::span<const std::uint8_t> bytes) const {
    fuzz::require(file_.write(bytes.data(), bytes.size()));
  }
  void rewind() const { ::lseek(file_.get(), 0, SEEK_SET); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_.get()); }

 private:
  FileDescriptor file_;
};

// Of this run's own, in memory where there is such a place: every import waits for what it writes.
class Directory {
 public:
  Directory() {
    const std::filesystem::path memory = "/dev/shm";
    const auto folder =
        std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path();
    path_ = (folder / "lathe-fuzz-XXXXXX").string();
    fuzz::require(::mkdtemp(path_.data()) != nullptr);
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

const std::string& directory() {
  static const Directory made;
  return made.path();
}

void import(const MemoryFile& archive) {
  const auto imported = import_cache(directory(), archive.path(), std::int64_t{1} << 20);
  fuzz::require_clear(imported);
  if (!imported || imported->added.entries == 0) return;
  const auto listed = list_cache(directory());
  fuzz::require_clear(listed);
  if (listed) {
    for (const CacheEntry& entry : *listed)
      fuzz::require_clear(read_cached_code(directory(), entry.digest));
  }
  fuzz::require_clear(verify_cache(directory(), true));
  fuzz::require_clear(clear_cache(directory()));
}

void read_raw(std::span<const std::uint8_t> bytes, CacheEntryEnd end) {
  const MemoryFile file;
  file.write(bytes);
  file.rewind();
  const auto size = static_cast<std::int64_t>(bytes.size());
  const auto entry = read_cache_entry(file.file(), size, end);
  fuzz::require_clear(entry);
  file.rewind();
  fuzz::require_clear(read_cache_key(file.file(), size));
}

void import_raw(std::span<const std::uint8_t> bytes) {
  const MemoryFile archive;
  archive.write(bytes);
  import(archive);
}

// Sound entries of the input's key and payload: as a file, and in an archive as docs/cache.md has
// it.
void import_sound(FuzzedDataProvider& input) {
  const std::string key = input.ConsumeRandomLengthString(4096);
  const std::string payload = input.ConsumeRemainingBytesAsString();
  const auto bytes = std::as_bytes(std::span(payload));
  const std::int64_t size = cache_entry_bytes(key, bytes);
  const MemoryFile archive;
  struct {
    char magic[8] = {'L', 'A', 'T', 'H', 'E', 'X', '1', '\n'};
    std::uint64_t entries = 1, bytes = 0;
  } header;
  header.bytes = sizeof header + static_cast<std::uint64_t>(size);
  fuzz::require(archive.file().write(&header, sizeof header));
  if (!write_cache_entry(archive.file(), key, bytes)) return;
  ::lseek(archive.file().get(), sizeof header, SEEK_SET);
  const auto entry = read_cache_entry(archive.file(), size, CacheEntryEnd::exact);
  fuzz::require(entry && entry->key == key && std::ranges::equal(entry->payload, bytes));
  static_cast<void>(KernelRecord::parse(payload));
  static_cast<void>(ptx_in_key(key));
  import(archive);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span bytes(data + 1, size - 1);
  FuzzedDataProvider input(bytes.data(), bytes.size());
  // What goes by way of a folder is a hundred times slower.
  const int way = data[0] % 16;
  if (way < 7)
    read_raw(bytes, CacheEntryEnd::exact);
  else if (way < 13)
    read_raw(bytes, CacheEntryEnd::open);
  else if (way < 15)
    import_raw(bytes);
  else
    import_sound(input);
  return 0;
}
