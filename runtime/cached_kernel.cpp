// Owns the writing and the reading of key texts and records.
#include "runtime/cached_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>
#include <vector>

namespace lathe {
namespace {

// Raised with every change of what follows, so that an older Lathe's entries are not found.
constexpr std::string_view kRecordHead = "lathe key 1";
constexpr std::string_view kCubinHead = "lathe cubin 1";
constexpr std::size_t kCubinLines = 3;  // before the PTX

std::vector<std::string_view> split(std::string_view text, char separator, std::size_t most) {
  std::vector<std::string_view> parts;
  while (parts.size() + 1 < most && text.find(separator) != text.npos) {
    parts.push_back(text.substr(0, text.find(separator)));
    text.remove_prefix(parts.back().size() + 1);
  }
  parts.push_back(text);
  return parts;
}

std::string entry_point(std::string_view ptx) {
  const std::string_view mark = ".entry ";
  const auto at = ptx.find(mark);
  if (at == ptx.npos) return {};
  ptx.remove_prefix(at + mark.size());
  return std::string(ptx.substr(0, ptx.find_first_of(" \t\n(")));
}

}  // namespace

std::string cubin_key(std::string_view ptx, const Target& target, const Assembler& assembler) {
  return fmt::format("{}\n{}\n{}\n{}", kCubinHead, target.name(), assembler.name(), ptx);
}

std::string record_key(std::string_view subject, const Target& target, Route route,
                       std::string_view compiler, std::string_view fingerprint,
                       const Assembler& assembler) {
  return fmt::format("{}\n{}\n{} ptx {}\n{}\n{}\n{}\n{}\n", kRecordHead, subject, target.name(),
                     target.ptx_version(), route_name(route), compiler, fingerprint,
                     assembler.name());
}

std::string KernelRecord::text() const {
  return fmt::format("{} {} {} {} {} {}", cubin, entry, geometry.grid_x, geometry.grid_y,
                     geometry.threads, geometry.shared_bytes);
}

std::optional<KernelRecord> KernelRecord::parse(std::string_view text) {
  const auto words = split(text, ' ', 6);
  if (words.size() != 6) return std::nullopt;
  KernelRecord record{std::string(words[0]), std::string(words[1]), {}};
  Geometry& geometry = record.geometry;
  const std::array numbers = {&geometry.grid_x, &geometry.grid_y, &geometry.threads,
                              &geometry.shared_bytes};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::string_view word = words[i + 2];
    const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), *numbers[i]);
    if (status != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  }
  return record;
}

std::optional<CachedKernel> find_kernel(const DiskCache& cache, const std::string& record_key) {
  const auto bytes = cache.find(record_key);
  if (!bytes) return std::nullopt;
  auto record = KernelRecord::parse({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
  if (!record) return std::nullopt;
  auto cubin = cache.find_digest(record->cubin);
  if (!cubin) return std::nullopt;
  return CachedKernel{*std::move(record), *std::move(cubin)};
}

bool keep_cubin(const DiskCache& cache, const std::string& cubin_key, const Cubin& cubin) {
  return bool(cache.store(cubin_key, cubin));
}

bool keep_record(const DiskCache& cache, const std::string& record_key,
                 const KernelRecord& record) {
  const std::string text = record.text();
  return bool(cache.store(record_key, std::as_bytes(std::span(text))));
}

std::string_view ptx_in_key(std::string_view key) {
  const auto parts = split(key, '\n', kCubinLines + 1);
  return parts.size() == kCubinLines + 1 && parts[0] == kCubinHead ? parts.back() : "";
}

CacheEntry describe_key(std::string_view key) {
  CacheEntry entry;
  if (const std::string_view ptx = ptx_in_key(key); !ptx.empty()) {
    const auto lines = split(key, '\n', kCubinLines + 1);
    entry.kind = CacheEntryKind::cubin;
    entry.subject = entry_point(ptx);
    entry.target = lines[1];
    entry.assembler = lines[2];
    return entry;
  }
  const auto lines = split(key, '\n', 8);
  if (lines.size() != 8 || lines[0] != kRecordHead) return entry;
  entry.kind = CacheEntryKind::kernel;
  entry.subject = lines[1];
  entry.target = split(lines[2], ' ', 2)[0];
  entry.route = lines[3];
  entry.compiler = lines[4];
  entry.assembler = lines[6];
  return entry;
}

}  // namespace lathe
