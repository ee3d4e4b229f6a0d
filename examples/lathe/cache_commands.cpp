// Owns what `lathe cache` does and says.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "examples/lathe/commands.h"
#include "examples/lathe/units.h"

namespace lathe::tool {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kShortName = 12;  // digits of an entry's name in the list

std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string amount_text(const CacheAmount& amount) {
  return fmt::format("{}, {}", count_text(amount.entries, "entry", "entries"),
                     size_text(amount.bytes));
}

std::string directory_of(const Options& options) {
  return options.directory.empty() ? cache_settings().directory : options.directory;
}

std::int64_t count(const std::vector<CacheEntry>& entries, CacheEntryKind kind) {
  return std::ranges::count(entries, kind, &CacheEntry::kind);
}

std::string line(const CacheEntry& entry) {
  return fmt::format("{}  {:<7} {:>10}  {:>11}  {:<7} {:<6} {}\n",
                     entry.digest.substr(0, kShortName), cache_entry_kind_name(entry.kind),
                     size_text(entry.bytes), age_text(entry.last_read), entry.target,
                     entry.route.empty() ? "-" : entry.route, entry.subject);
}

bool matches(const CacheEntry& entry, const std::string& key) {
  return entry.subject == key || (key.size() >= 4 && entry.digest.starts_with(key));
}

Result<void> write_file(const std::string& path, const std::vector<std::byte>& bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  bool good = file && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if (file && std::fclose(file) != 0) good = false;
  if (good) return {};
  return Error{Code::io, fmt::format("cannot write '{}': {}", path, std::strerror(errno)), {}};
}

std::string facts(const CachedCode& code) {
  const CacheEntry& entry = code.entry;
  const Geometry& g = code.geometry;
  std::string text =
      fmt::format("{}\n  name         {}\n  kind         {}\n  target       {}\n", entry.subject,
                  entry.digest, cache_entry_kind_name(entry.kind), entry.target);
  if (entry.kind == CacheEntryKind::kernel) {
    text += fmt::format(
        "  route        {} ({})\n  launch       grid {} x {}, {} threads, {} bytes of dynamic "
        "shared "
        "memory\n",
        entry.route, entry.compiler, g.grid_x, g.grid_y, g.threads, g.shared_bytes);
  }
  return text + fmt::format(
                    "  assembler    {}\n  entry point  {}\n  PTX          {}\n  cubin        {}\n"
                    "  last read    {}\n",
                    entry.assembler, code.entry_point, size_text(std::int64_t(code.ptx.size())),
                    size_text(std::int64_t(code.cubin.size())), age_text(entry.last_read));
}

}  // namespace

Result<Output> cache_stat(const Options& options) {
  const CacheSettings settings = cache_settings();
  LATHE_ASSIGN(const CacheState state, examine_cache(options.directory));
  LATHE_ASSIGN(const std::vector<CacheEntry> entries, list_cache(options.directory));
  const auto kernels = count(entries, CacheEntryKind::kernel);
  const auto cubins = count(entries, CacheEntryKind::cubin);
  const char* mode = settings.off ? "off" : settings.read_only ? "read-only" : "on";
  if (options.json) {
    return Output{.text = dump({{"directory", directory_of(options)},
                                {"mode", mode},
                                {"cap_bytes", settings.cap_bytes},
                                {"entries", state.entries},
                                {"bytes", state.bytes},
                                {"kernels", kernels},
                                {"cubins", cubins},
                                {"unfinished", state.unfinished},
                                {"unfinished_bytes", state.unfinished_bytes},
                                {"oldest_read", state.oldest_read},
                                {"newest_read", state.newest_read}}),
                  .word = {}};
  }
  std::string text = fmt::format(
      "folder      {}\nmode        {}\nentries     {}: {} kernels, {} cubins, {} others\n"
      "size        {} of {} ({:.1f} %)\nunfinished  {}, {}\n",
      directory_of(options), mode, state.entries, kernels, cubins, state.entries - kernels - cubins,
      size_text(state.bytes), size_text(settings.cap_bytes),
      100 * double(state.bytes) / double(settings.cap_bytes),
      count_text(state.unfinished, "file", "files"), size_text(state.unfinished_bytes));
  if (state.entries > 0) {
    text += fmt::format("last read   {} to {}\n", age_text(state.oldest_read),
                        age_text(state.newest_read));
  }
  return Output{.text = text, .word = {}};
}

Result<Output> cache_list(const Options& options) {
  LATHE_ASSIGN(const std::vector<CacheEntry> entries, list_cache(options.directory));
  if (options.json) {
    Json list = Json::array();
    for (const CacheEntry& entry : entries) {
      list.push_back({{"name", entry.digest},
                      {"kind", cache_entry_kind_name(entry.kind)},
                      {"subject", entry.subject},
                      {"target", entry.target},
                      {"route", entry.route},
                      {"compiler", entry.compiler},
                      {"assembler", entry.assembler},
                      {"bytes", entry.bytes},
                      {"last_read", entry.last_read}});
    }
    return Output{.text = dump(list), .word = {}};
  }
  Output output;
  for (const CacheEntry& entry : entries) output.text += line(entry);
  output.word = fmt::format("{}\n", count_text(std::int64_t(entries.size()), "entry", "entries"));
  return output;
}

Result<Output> cache_show(const Options& options) {
  LATHE_ASSIGN(std::vector<CacheEntry> entries, list_cache(options.directory));
  std::erase_if(entries, [&](const CacheEntry& entry) { return !matches(entry, options.key); });
  if (entries.empty()) {
    return Error{Code::not_found, fmt::format("no entry is called '{}'", options.key), {}}.with(
        "hint", "lathe cache list has them all");
  }
  if (entries.size() > 1 && (options.ptx || !options.cubin.empty())) {
    Error error{
        Code::invalid_argument,
        fmt::format("{} entries are called '{}'; name one of them", entries.size(), options.key),
        {}};
    for (const CacheEntry& entry : entries) {
      error.details.push_back({entry.digest.substr(0, kShortName),
                               entry.target + ", " + entry.compiler + ", " + entry.assembler});
    }
    return error;
  }
  Output output;
  for (const CacheEntry& entry : entries) {
    LATHE_ASSIGN(const CachedCode code, read_cached_code(options.directory, entry.digest));
    output.text += options.ptx ? code.ptx : facts(code);
    if (options.cubin.empty()) continue;
    LATHE_TRY(write_file(options.cubin, code.cubin));
    output.word += fmt::format("{}: {} of machine code for {}\n", options.cubin,
                               size_text(std::int64_t(code.cubin.size())), entry.target);
  }
  return output;
}

Result<Output> cache_trim(const Options& options) {
  const std::int64_t cap = options.bytes ? options.bytes : cache_settings().cap_bytes;
  LATHE_ASSIGN(const CacheAmount gone, trim_cache(options.directory, cap));
  LATHE_ASSIGN(const CacheState left, examine_cache(options.directory));
  return Output{.text = fmt::format("removed {}; {} of {} are left\n", amount_text(gone),
                                    size_text(left.bytes), size_text(cap)),
                .word = {}};
}

Result<Output> cache_verify(const Options& options) {
  LATHE_ASSIGN(const CacheVerdict verdict, verify_cache(options.directory, options.remove));
  Output output;
  for (const CacheDamage& damage : verdict.damaged) {
    output.text +=
        fmt::format("{}: {}{}\n", damage.path, damage.reason, options.remove ? "; removed" : "");
  }
  output.text +=
      fmt::format("{} good, {} damaged\n", amount_text(verdict.good), verdict.damaged.size());
  output.good = verdict.damaged.empty() || options.remove;
  return output;
}

Result<Output> cache_clear(const Options& options) {
  LATHE_ASSIGN(const CacheAmount gone, clear_cache(options.directory));
  return Output{.text = fmt::format("removed {}\n", amount_text(gone)), .word = {}};
}

Result<Output> cache_export(const Options& options) {
  LATHE_ASSIGN(const CacheAmount written, export_cache(options.directory, options.file));
  return Output{.text = fmt::format("{}: {}\n", options.file, amount_text(written)), .word = {}};
}

Result<Output> cache_import(const Options& options) {
  LATHE_ASSIGN(const CacheImport done,
               import_cache(options.directory, options.file, options.bytes));
  return Output{
      .text = fmt::format("added {}; {} were there; {} evicted\n", amount_text(done.added),
                          amount_text(done.present), count_text(done.evicted, "entry", "entries")),
      .word = {}};
}

}  // namespace lathe::tool
