// Owns the look into a cache from outside, and its upkeep.
#include <unistd.h>

#include <algorithm>
#include <tuple>

#include "runtime/cache_entry.h"
#include "runtime/cached_kernel.h"
#include "runtime/disk_cache.h"
#include "runtime/environment.h"
#include "runtime/open_cache.h"

namespace lathe {
namespace {

CacheEntry describe(std::string_view key, std::string_view digest, const struct stat& info) {
  CacheEntry entry = describe_key(key);
  entry.digest = digest;
  entry.bytes = info.st_size;
  entry.last_read = info.st_atim.tv_sec;
  return entry;
}

}  // namespace

Result<CacheDirectory> open_cache_to_read(const std::string& directory) {
  if (!directory.empty()) return CacheDirectory::open(directory, true);
  const std::string known = read_environment().cache_directory;
  if (!known.empty()) return CacheDirectory::open(known, true);
  return Error{
      Code::not_found, "No cache directory is known: neither LATHE_CACHE_DIR nor HOME is set.", {}};
}

CacheSettings cache_settings() {
  const Environment environment = read_environment();
  return {
      .directory = environment.cache_directory,
      .off = environment.cache_mode == CacheMode::off || environment.cache_nowhere,
      .read_only = environment.cache_mode == CacheMode::read_only,
      .cap_bytes = environment.cache_cap ? environment.cache_cap : DiskCacheOptions{}.cap_bytes};
}

const char* cache_entry_kind_name(CacheEntryKind kind) {
  switch (kind) {
    case CacheEntryKind::kernel:
      return "kernel";
    case CacheEntryKind::cubin:
      return "cubin";
    case CacheEntryKind::unknown:
      break;
  }
  return "unknown";
}

Result<CacheState> examine_cache(const std::string& directory) {
  LATHE_ASSIGN(const CacheDirectory cache, open_cache_to_read(directory));
  CacheState state;
  cache.for_each_entry([&](const std::string&, const std::string&, const struct stat& info) {
    const auto read = std::int64_t(info.st_atim.tv_sec);
    state.oldest_read = state.entries == 0 ? read : std::min(state.oldest_read, read);
    state.newest_read = std::max(state.newest_read, read);
    ++state.entries;
    state.bytes += info.st_size;
  });
  cache.for_each_temporary([&](const std::string&, const struct stat& info) {
    ++state.unfinished;
    state.unfinished_bytes += info.st_size;
  });
  return state;
}

Result<std::vector<CacheEntry>> list_cache(const std::string& directory) {
  LATHE_ASSIGN(const CacheDirectory cache, open_cache_to_read(directory));
  std::vector<CacheEntry> entries;
  cache.for_each_entry([&](const std::string& digest, const std::string&, const struct stat&) {
    struct stat info = {};
    const auto file = cache.open_entry(digest, info);
    if (!file) return;
    if (const auto key = read_cache_key(*file, info.st_size)) {
      entries.push_back(describe(*key, digest, info));
    }
  });
  std::sort(entries.begin(), entries.end(), [](const CacheEntry& a, const CacheEntry& b) {
    return std::tie(a.kind, a.subject, a.digest) < std::tie(b.kind, b.subject, b.digest);
  });
  return entries;
}

Result<CachedCode> read_cached_code(const std::string& directory, std::string_view digest) {
  LATHE_ASSIGN(const CacheDirectory cache, open_cache_to_read(directory));
  if (!is_cache_digest(digest)) {
    return Error{Code::invalid_argument, "An entry is named by 32 hex digits.", {}};
  }
  struct stat info = {};
  LATHE_ASSIGN(CacheContents contents, cache.read(digest, info));
  CachedCode code;
  code.entry = describe(contents.key, digest, info);
  code.entry_point = code.entry.subject;
  if (code.entry.kind == CacheEntryKind::kernel) {
    const auto record = KernelRecord::parse(
        {reinterpret_cast<const char*>(contents.payload.data()), contents.payload.size()});
    if (!record || !is_cache_digest(record->cubin)) {
      return Error{Code::corrupt_file, "The entry's record makes no sense.", {}};
    }
    code.entry_point = record->entry;
    code.geometry = record->geometry;
    auto cubin = cache.read(record->cubin, info);
    if (!cubin) {
      return Error{
          cubin.error().code, "The entry's cubin cannot be had: " + cubin.error().message, {}};
    }
    contents = std::move(cubin).value();
  }
  code.ptx = ptx_in_key(contents.key);
  code.cubin = std::move(contents.payload);
  return code;
}

Result<CacheAmount> trim_cache(const std::string& directory, std::int64_t cap_bytes) {
  LATHE_TRY(open_cache_to_read(directory));
  LATHE_ASSIGN(const DiskCache cache, open_cache_to_change(directory, cap_bytes));
  cache.trim();
  const CacheCounts counts = cache.counts();
  return CacheAmount{counts.evictions, counts.bytes_evicted};
}

Result<CacheAmount> clear_cache(const std::string& directory) {
  LATHE_TRY(open_cache_to_read(directory));
  LATHE_ASSIGN(const DiskCache cache, open_cache_to_change(directory, 0));
  CacheAmount gone;
  const auto remove = [&](const std::string& path, const struct stat& info) {
    if (::unlink(path.c_str()) != 0) return;
    ++gone.entries;
    gone.bytes += info.st_size;
  };
  cache.directory().for_each_entry([&](const std::string&, const std::string& path,
                                       const struct stat& info) { remove(path, info); });
  cache.directory().for_each_temporary(remove);
  return gone;
}

Result<CacheVerdict> verify_cache(const std::string& directory, bool remove) {
  LATHE_ASSIGN(const CacheDirectory cache, open_cache_to_read(directory));
  std::optional<DiskCache> remover;
  if (remove) {
    LATHE_ASSIGN(remover, open_cache_to_change(directory, 0));
  }
  CacheVerdict verdict;
  cache.for_each_entry([&](const std::string& digest, const std::string& path, const struct stat&) {
    struct stat info = {};
    const auto contents = cache.read(digest, info);
    if (contents) {
      ++verdict.good.entries;
      verdict.good.bytes += info.st_size;
    } else if (contents.error().code != Code::not_found) {
      verdict.damaged.push_back({path, contents.error().message});
      // Which checks again, and removes only what nobody has replaced meanwhile.
      if (remover) static_cast<void>(remover->find_digest(digest));
    }
  });
  return verdict;
}

}  // namespace lathe
