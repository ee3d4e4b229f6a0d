// Owns the reading of the environment.
#include "runtime/environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "runtime/session_choices.h"

namespace lathe {
namespace {

using enum VariableReader;

constexpr EnvironmentVariable kVariables[] = {
    {Variable::cache, library, "LATHE_CACHE", "on, read-only or off", "on",
     "whether compiled kernels are kept between runs; read-only takes what is there and writes "
     "nothing"},
    {Variable::cache_directory, library, "LATHE_CACHE_DIR", "folder", "XDG_CACHE_HOME/lathe",
     "where they are kept; empty: nowhere"},
    {Variable::cache_cap, library, "LATHE_CACHE_CAP", "size, as 200M or 2G", "512M",
     "how many bytes they may take; beyond that, those read longest ago go"},
    {Variable::xdg_cache_home, library, "XDG_CACHE_HOME", "folder", "HOME/.cache",
     "where caches of all programs are"},
    {Variable::home, library, "HOME", "folder", "no cache", "whose .cache is meant"},
    {Variable::log, library, "LATHE_LOG", "stderr or file", "no log",
     "where a line goes for each kernel and each trouble of the cache; a file is added to"},
    {Variable::dump, library, "LATHE_DUMP", "folder", "no files",
     "where the PTX and the cubin of each kernel that is built are written"},
    {Variable::nvrtc, library, "LATHE_NVRTC", "file", "libnvrtc.so.13 or .12",
     "the compiler of the nvrtc route"},
    {Variable::llvm, library, "LATHE_LLVM", "file", "liblathe_llvm.so",
     "the compiler of the llvm route"},
    {Variable::nvjitlink, library, "LATHE_NVJITLINK", "file or off", "libnvJitLink.so.13 or .12",
     "the assembler; off: the driver's own"},
    {Variable::wait_limit, library, "LATHE_WAIT_LIMIT", "seconds or off", "300",
     "how long the GPU may work without choosing a token before it counts as hung"},
    {Variable::tuning, library, "LATHE_TUNING", "NAME=VALUE,...", "all is chosen",
     "what is set in place of a choice, as executor=graph,gemv.warps=4 (docs/tuning.md)"},
    {Variable::tuning_table, library, "LATHE_TUNING_TABLE", "file", "the library's",
     "tunings that bench_tune found to be faster than the rules, by GPU and model; counts before "
     "the library's"},
    {Variable::cuda_home, programs, "CUDA_HOME", "folder", "CUDA_PATH",
     "the CUDA toolkit whose bin/ptxas `dump_ptx --assemble` runs"},
    {Variable::cuda_path, programs, "CUDA_PATH", "folder", "/usr/local/cuda", "the same"},
    {Variable::path, programs, "PATH", "folders", "none", "where ptxas is looked for after these"},
    {Variable::terminal, programs, "TERM", "name", "dumb",
     "dumb: progress is printed in lines of their own, not redrawn"},
    {Variable::visible_devices, driver, "CUDA_VISIBLE_DEVICES", "GPU numbers", "all",
     "which GPUs there are for this process"},
};

constexpr bool is_in_order() {
  for (std::size_t i = 0; i < std::size(kVariables); ++i) {
    if (std::size_t(kVariables[i].variable) != i) return false;
  }
  return true;
}
static_assert(is_in_order(), "environment_variable() takes a variable's number for its place");

std::string text_of(Variable variable) {
  return environment_value(variable).value_or("");
}

// 0 for what is not a number with an optional K, M or G, or does not fit.
std::int64_t size_of(std::string_view text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data(), end, number);
  if (status != std::errc{} || number <= 0 || end - rest > 1) return 0;
  const std::string_view units = "KMG";
  int shift = 0;
  if (rest != end) {
    const auto unit = units.find(char(*rest & ~0x20));
    if (unit == units.npos) return 0;
    shift = 10 * (int(unit) + 1);
  }
  if (number > (std::numeric_limits<std::int64_t>::max() >> shift)) return 0;
  return number << shift;
}

// 0 for what is no number of seconds, -1 for off.
std::chrono::milliseconds wait_limit_of(std::string_view text) {
  if (text == "off") return std::chrono::milliseconds(-1);
  std::int32_t seconds = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data(), end, seconds);
  if (status != std::errc{} || rest != end || seconds <= 0) seconds = 0;
  return std::chrono::seconds(seconds);
}

std::string problem(Variable variable, const std::string& value) {
  const EnvironmentVariable& row = environment_variable(variable);
  return fmt::format("{} is \"{}\", and not {}; it counts as not set.", row.name, value, row.type);
}

void read_cache(Environment& environment) {
  const std::string mode = text_of(Variable::cache);
  if (mode == "off") {
    environment.cache_mode = CacheMode::off;
  } else if (mode == "read-only") {
    environment.cache_mode = CacheMode::read_only;
  } else if (!mode.empty() && mode != "on") {
    environment.problems.push_back(problem(Variable::cache, mode));
  }
  if (const std::string cap = text_of(Variable::cache_cap); !cap.empty()) {
    environment.cache_cap = size_of(cap);
    if (!environment.cache_cap) environment.problems.push_back(problem(Variable::cache_cap, cap));
  }
  if (const auto directory = environment_value(Variable::cache_directory)) {
    environment.cache_directory = *directory;
    environment.cache_nowhere = directory->empty();
    return;
  }
  const std::string xdg = text_of(Variable::xdg_cache_home);
  const std::string home = text_of(Variable::home);
  // The XDG specification says to ignore a relative path.
  if (xdg.starts_with('/')) {
    environment.cache_directory = xdg + "/lathe";
  } else if (home.starts_with('/')) {
    environment.cache_directory = home + "/.cache/lathe";
  }
}

}  // namespace

std::span<const EnvironmentVariable> environment_variables() {
  return kVariables;
}

const EnvironmentVariable& environment_variable(Variable variable) {
  return kVariables[std::size_t(variable)];
}

std::optional<std::string> environment_value(Variable variable) {
  if (const char* value = std::getenv(environment_variable(variable).name)) return value;
  return std::nullopt;
}

Environment read_environment() {
  Environment environment;
  read_cache(environment);
  environment.log = text_of(Variable::log);
  environment.dump = text_of(Variable::dump);
  environment.nvrtc = text_of(Variable::nvrtc);
  environment.llvm = text_of(Variable::llvm);
  environment.nvjitlink = text_of(Variable::nvjitlink);
  if (const std::string limit = text_of(Variable::wait_limit); !limit.empty()) {
    environment.wait_limit = wait_limit_of(limit);
    if (environment.wait_limit.count() == 0)
      environment.problems.push_back(problem(Variable::wait_limit, limit));
  }
  environment.tuning_table = text_of(Variable::tuning_table);
  if (const std::string tuning = text_of(Variable::tuning); !tuning.empty()) {
    environment.tuning = tuning;
    if (const Result<void> valid = check_tuning_variable(tuning); !valid)
      environment.problems.push_back(valid.error().message + ".");
  }
  return environment;
}

}  // namespace lathe
