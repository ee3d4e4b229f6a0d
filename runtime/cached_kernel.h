// Owns what the disk cache keeps of a kernel: the texts it is found by, and a record that names its
// cubin, so that a warm start needs no compiler.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lathe/codegen/emit.h"
#include "lathe/codegen/kernel_table.h"
#include "lathe/codegen/target.h"
#include "lathe/runtime/cache.h"
#include "runtime/assembler.h"
#include "runtime/disk_cache.h"

namespace lathe {

// What a cubin is kept under: all that went into it.
std::string cubin_key(std::string_view ptx, const Target& target, const Assembler& assembler);

// What a kernel's record is kept under: all that the PTX of `subject` (a kernel key's text, or a
// program's) depends on, and the assembler.
std::string record_key(std::string_view subject, const Target& target, Route route,
                       std::string_view compiler, std::string_view fingerprint,
                       const Assembler& assembler);

struct KernelRecord {
  std::string cubin;  // digest of its entry
  std::string entry;  // point, in the cubin
  Geometry geometry;

  std::string text() const;
  // Nothing where it is damaged.
  static std::optional<KernelRecord> parse(std::string_view text);
};

struct CachedKernel {
  KernelRecord record;
  Cubin cubin;
};
std::optional<CachedKernel> find_kernel(const DiskCache& cache, const std::string& record_key);
// A failure (false) stands in the cache's counters, its log and its trouble().
bool keep_cubin(const DiskCache& cache, const std::string& cubin_key, const Cubin& cubin);
bool keep_record(const DiskCache& cache, const std::string& record_key, const KernelRecord& record);

// The PTX in a cubin's key text; empty for another key.
std::string_view ptx_in_key(std::string_view key);
// What a key text says of its entry: kind, subject, target, assembler, route, compiler.
CacheEntry describe_key(std::string_view key);

}  // namespace lathe
