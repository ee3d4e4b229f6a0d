// Owns the parsing and the options that are the same in all programs.
#include "examples/shared_options.h"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <memory>
#include <string>

#include "examples/command_line.h"
#include "lathe/runtime/environment.h"

namespace lathe::command_line {

namespace {

// Help that shows what an option takes and leaves limits and exclusions to the error that names
// them.
class Help : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string type = option->get_type_name();
    std::string text = option->get_type_size() == 0 ? "" : " " + type.substr(0, type.find(':'));
    if (option->get_required()) text += " (required)";
    return text;
  }
};

void set_help(CLI::App& app, const std::shared_ptr<Help>& help) {
  app.formatter(help);
  for (CLI::App* command : app.get_subcommands({})) set_help(*command, help);
}

// The place the build found, unless the program was copied to a machine without it.
std::string default_nvrtc() {
  std::error_code ignored;
  const std::string path = LATHE_NVRTC_DEFAULT;
  return std::filesystem::exists(path, ignored) ? path : "";
}

}  // namespace

std::optional<int> parse(CLI::App& app, int argc, const char* const* argv) {
  const auto help = std::make_shared<Help>();
  help->column_width(26);
  set_help(app, help);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
    print_usage_error(app.get_name(), error.what());
    return kUsage;
  }
  return std::nullopt;
}

void add_route_option(CLI::App& app, std::vector<Route>& routes) {
  std::string order;
  for (Route route : default_routes())
    order += fmt::format("{}{}", order.empty() ? "" : ",", route_name(route));
  app.add_option_function<std::vector<std::string>>(
         "--route",
         [&routes](const std::vector<std::string>& names) {
           for (const std::string& name : names)
             routes.push_back(value_or_usage_error("--route", route_by_name(name)));
         },
         "Ways to PTX in order of preference: nvrtc, llvm, text (default " + order + ")")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("ROUTE,...");
}

void add_compiler_options(CLI::App& app, CompilerPaths& paths) {
  paths.nvrtc = default_nvrtc();
  app.add_option("--nvrtc", paths.nvrtc,
                 fmt::format("NVRTC (default: {}, what the build found, {})",
                             environment_variable(Variable::nvrtc).name,
                             environment_variable(Variable::nvrtc).unset))
      ->envname(environment_variable(Variable::nvrtc).name)
      ->type_name("FILE");
  app.add_option("--llvm", paths.llvm,
                 fmt::format("LLVM plugin (default: {}, {} beside this program)",
                             environment_variable(Variable::llvm).name,
                             environment_variable(Variable::llvm).unset))
      ->envname(environment_variable(Variable::llvm).name)
      ->type_name("FILE");
}

void add_threads_option(CLI::App& app, int& threads) {
  app.add_option("--threads", threads, "Of the CPU executor (default: all cores)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
}

void add_cache_options(CLI::App& app, SessionOptions& options) {
  CLI::Option* no_cache = app.add_flag_callback(
      "--no-cache", [&options] { options.disk_cache = false; },
      "Neither read nor keep compiled kernels");
  app.add_option("--cache-dir", options.cache_directory,
                 "Folder for compiled kernels (default: LATHE_CACHE_DIR, else ~/.cache/lathe)")
      ->excludes(no_cache)
      ->type_name("DIR");
}

void add_plan_options(CLI::App& app, PlanOptions& options) {
  app.add_option("--context", options.context,
                 "Positions of the KV cache (default: the model's, at most 4096)")
      ->check(CLI::Range(1, std::numeric_limits<int>::max()))
      ->type_name("N");
  app.add_option_function<std::string>(
         "--kv",
         [&options](const std::string& name) {
           options.kv = value_or_usage_error("--kv", format_by_name(name));
           if (options.kv != Format::f16 && options.kv != Format::f32 && options.kv != Format::q8_0)
             throw CLI::ValidationError("--kv", "the KV cache is f32, f16 or q8_0, not " + name);
         },
         "Format of the KV cache: f32, f16 in half the memory, or q8_0 in a quarter (default f32)")
      ->type_name("FORMAT");
  app.add_option_function<std::string>(
         "--fusion",
         [&options](const std::string& name) {
           options.fusion = name == "full"   ? Fusion::full
                            : name == "none" ? Fusion::none
                                             : Fusion::automatic;
         },
         "full: five kernels a layer, on weights in tiles; none: one for each operation; auto: "
         "full\n"
         "where the model and the GPU allow it (default auto)")
      ->check(CLI::IsMember({"auto", "full", "none"}))
      ->type_name("FUSION");
  add_chunk_option(app, options.chunk);
  app.add_option("--tuning", options.tuning,
                 "What is set in place of a choice, as executor=graph,gemv.warps=4\n"
                 "(docs/tuning.md)")
      ->type_name("NAME=VALUE,...");
}

void add_chunk_option(CLI::App& app, int& chunk) {
  app.add_option("--chunk", chunk,
                 fmt::format("Tokens of a prompt read at once by fused kernels; 0: one by one "
                             "(default {})",
                             chunk))
      ->check(CLI::Range(0, kMostChunkTokens))
      ->type_name("N");
}

}  // namespace lathe::command_line
