// Owns the cache of compiled kernels seen from outside: its counters, what is in it, its upkeep,
// and its passage to another machine as one file.
//
// docs/cache.md is the contract. A `directory` is that of LATHE_CACHE_DIR, without the version
// folder; empty: the one that the environment names. All functions are safe beside processes that
// use the same cache. Errors: io, with a sentence that names the file; not_found where there is no
// cache or no such entry; corrupt_file for an archive that is damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/codegen/kernel_key.h"
#include "lathe/codegen/kernel_table.h"
#include "lathe/codegen/result.h"

namespace lathe {

// What one device's cache did since it was opened. A warm kernel reads two entries.
struct CacheCounts {
  std::int64_t hits = 0;            // entries read
  std::int64_t misses = 0;          // entries that were not there, or were rejected
  std::int64_t rejects = 0;         // entries that were damaged, unreadable or not the user's alone
  std::int64_t writes = 0;          // entries written
  std::int64_t write_failures = 0;  // and not written: a full disk, no permission ...
  std::int64_t evictions = 0;       // entries removed to stay under the cap
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
  std::int64_t bytes_evicted = 0;
};

// The cache that a device would open by the environment.
struct CacheSettings {
  std::string directory;  // empty: none is known
  bool off = false;
  bool read_only = false;
  std::int64_t cap_bytes = 0;
};
CacheSettings cache_settings();

enum class CacheEntryKind : std::uint8_t {
  kernel,   // key, launch shape, and which cubin
  cubin,    // machine code and the PTX it was made of
  unknown,  // of another version of Lathe
};
const char* cache_entry_kind_name(CacheEntryKind kind);

struct CacheEntry {
  std::string digest;  // 32 hex digits, its name
  CacheEntryKind kind = CacheEntryKind::unknown;
  std::string subject;    // the kernel's key text; of a cubin, its entry point
  std::string target;     // "sm_90a"
  std::string assembler;  // "nvJitLink 13.0 (libnvJitLink.so.13)"
  std::string route;      // kernel only
  std::string compiler;   // kernel only
  std::int64_t bytes = 0;
  std::int64_t last_read = 0;  // seconds since 1970
};

struct CacheState {
  std::int64_t entries = 0;
  std::int64_t bytes = 0;
  std::int64_t unfinished = 0;  // files being written, or left by writers that were killed
  std::int64_t unfinished_bytes = 0;
  std::int64_t oldest_read = 0;  // seconds since 1970; 0 in an empty cache
  std::int64_t newest_read = 0;
};
Result<CacheState> examine_cache(const std::string& directory);

// Sorted by kind, subject and name. Entries that cannot be read are left out.
Result<std::vector<CacheEntry>> list_cache(const std::string& directory);

struct CachedCode {
  CacheEntry entry;
  std::string entry_point;
  Geometry geometry;             // of a kernel
  std::string ptx;               // what the cubin was assembled from
  std::vector<std::byte> cubin;  // an ELF file, as cuobjdump and nvdisasm take it
};
// An entry and, of a kernel, the cubin that goes with it.
Result<CachedCode> read_cached_code(const std::string& directory, std::string_view digest);

struct CacheAmount {
  std::int64_t entries = 0;
  std::int64_t bytes = 0;
};
// Removes the entries read longest ago until at most so many bytes are left. Returns what went.
Result<CacheAmount> trim_cache(const std::string& directory, std::int64_t cap_bytes);
// Removes all entries, and nothing that is not Lathe's. Returns what went.
Result<CacheAmount> clear_cache(const std::string& directory);

struct CacheDamage {
  std::string path;
  std::string reason;
};
struct CacheVerdict {
  CacheAmount good;
  std::vector<CacheDamage> damaged;
};
// Reads and checks every entry; with `remove`, those that are damaged go.
Result<CacheVerdict> verify_cache(const std::string& directory, bool remove);

// Writes all good entries to one file, the same bytes for the same entries.
Result<CacheAmount> export_cache(const std::string& directory, const std::string& file);

struct CacheImport {
  CacheAmount added;
  CacheAmount present;  // and left as they were
  std::int64_t evicted = 0;
};
// Adds the entries of an exported file, after all of it has been checked. Its code will run on the
// GPU in the user's name: import what you trust. `cap_bytes` 0: the cap of the environment.
Result<CacheImport> import_cache(const std::string& directory, const std::string& file,
                                 std::int64_t cap_bytes);

}  // namespace lathe
