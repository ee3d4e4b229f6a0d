// Owns the text that goes into a bug report.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "examples/command_line.h"
#include "examples/lathe/commands.h"
#include "examples/lathe/units.h"

namespace lathe::tool {

namespace {

using Json = nlohmann::ordered_json;

#if defined(__clang__)
constexpr const char* kCompiler = "Clang " __clang_version__;
#else
constexpr const char* kCompiler = "GCC " __VERSION__;
#endif

std::string libraries_text(const SystemReport& report) {
  std::string text = "Libraries:\n";
  for (const LibraryFound& found : report.libraries) {
    text += fmt::format("  {:<10} {}\n", found.name,
                        found.problem.empty() ? found.version + ", from " + found.path
                                              : "not there: " + found.problem);
    text += fmt::format("  {:<10} for {}\n", "", found.purpose);
  }
  if (!report.kernel_module.empty()) {
    text += fmt::format("  {:<10} {}\n", "module", report.kernel_module);
  }
  return text;
}

std::string gpus_text(const SystemReport& report) {
  std::string text = "GPUs:\n";
  if (report.gpus.empty()) text += "  none; `decode` runs on the CPU here\n";
  for (const GpuFound& gpu : report.gpus) {
    text += fmt::format("  {:<10} {}, {}, {} multiprocessors, {}\n", gpu.ordinal, gpu.name,
                        gpu.problem.empty() ? gpu.target : gpu.problem, gpu.multiprocessors,
                        size_text(gpu.memory_bytes));
  }
  return text;
}

std::string cache_text(const SystemReport& report) {
  const CacheSettings& cache = report.cache;
  const CacheState& state = report.cache_state;
  std::string text = fmt::format("Disk cache:\n  {:<10} {}\n", "folder",
                                 cache.directory.empty() ? "none" : cache.directory);
  if (!report.cache_problem.empty()) {
    return text + fmt::format("  {:<10} {}\n", "state", report.cache_problem);
  }
  return text + fmt::format("  {:<10} {}, {}, {} of {}\n", "state",
                            cache.read_only ? "read-only" : "on",
                            count_text(state.entries, "entry", "entries"), size_text(state.bytes),
                            size_text(cache.cap_bytes));
}

std::string environment_text() {
  std::string text = "Environment:\n", unset;
  for (const EnvironmentVariable& variable : environment_variables()) {
    if (const auto value = environment_value(variable.variable)) {
      text += fmt::format("  {}={}\n", variable.name, *value);
    } else {
      unset += fmt::format("{}{}", unset.empty() ? "" : ", ", variable.name);
    }
  }
  return unset.empty() ? text : text + "  not set: " + unset + "\n";
}

Json json(const SystemReport& report) {
  Json libraries = Json::array(), gpus = Json::array(), environment = Json::object();
  for (const LibraryFound& found : report.libraries) {
    libraries.push_back({{"name", found.name},
                         {"version", found.version},
                         {"path", found.path},
                         {"problem", found.problem}});
  }
  for (const GpuFound& gpu : report.gpus) {
    gpus.push_back({{"ordinal", gpu.ordinal},
                    {"name", gpu.name},
                    {"target", gpu.target},
                    {"multiprocessors", gpu.multiprocessors},
                    {"memory_bytes", gpu.memory_bytes},
                    {"problem", gpu.problem}});
  }
  for (const EnvironmentVariable& variable : environment_variables()) {
    const auto value = environment_value(variable.variable);
    environment[variable.name] = value ? Json(*value) : Json();
  }
  return {{"version", command_line::version("lathe")},
          {"compiler", kCompiler},
          {"libraries", libraries},
          {"kernel_module", report.kernel_module},
          {"gpus", gpus},
          {"cache",
           {{"directory", report.cache.directory},
            {"off", report.cache.off},
            {"read_only", report.cache.read_only},
            {"cap_bytes", report.cache.cap_bytes},
            {"entries", report.cache_state.entries},
            {"bytes", report.cache_state.bytes},
            {"problem", report.cache_problem}}},
          {"environment", environment},
          {"problems", report.problems}};
}

}  // namespace

Result<Output> doctor(const Options& options) {
  const SystemReport report = examine_system(options.compilers);
  Output output{.text = {}, .word = {}, .good = report.problems.empty()};
  if (options.json) {
    output.text = json(report).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    return output;
  }
  output.text =
      fmt::format("{}, built by {}, {} cores\n\n{}\n{}\n{}\n{}", command_line::version("lathe"),
                  kCompiler, std::thread::hardware_concurrency(), libraries_text(report),
                  gpus_text(report), cache_text(report), environment_text());
  output.text += report.problems.empty() ? "\nProblems: none\n" : "\nProblems:\n";
  for (const std::string& problem : report.problems) output.text += "  " + problem + "\n";
  return output;
}

}  // namespace lathe::tool
