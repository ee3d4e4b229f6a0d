// Owns the opening of a cache that somebody looks into from outside.
#pragma once

#include <string>

#include "runtime/disk_cache.h"

namespace lathe {

// `directory` empty: the one that the environment names. Code::not_found: there is none.
Result<CacheDirectory> open_cache_to_read(const std::string& directory);
// The same, where entries will be added or removed. `cap_bytes` 0: that of the environment.
Result<DiskCache> open_cache_to_change(const std::string& directory, std::int64_t cap_bytes);

}  // namespace lathe
