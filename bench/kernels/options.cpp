// Owns the options of bench_kernels, their help, and what may not go together.
#include "bench/kernels/options.h"

#include <fmt/format.h>

#include <algorithm>

#include "examples/command_line.h"
#include "examples/shared_options.h"

namespace lathe::bench::kernels {

namespace {

constexpr const char* kDescription =
    "Measures every kernel that the plans of some models launch: time, share of the read rate.";

constexpr const char* kFooter = R"(Examples:
  bench_kernels
  bench_kernels --model llama-3.1-8b --plan decode --filter '^matvec'
  bench_kernels --route all -f q8_0 --json after.json --compare before.json
  bench_kernels gemv.q4_k.k4096.n14336.w4 matvec.q4_k.k4096.n4096.w16.bl132.st3.res
  bench_kernels --from after.json --compare before.json --tolerance 3
  bench_kernels --list

A kernel's time is that of a launch among several in a row, the gaps between them included: the
median of the repetitions. Its weights and KV cache are cold: three times the L2 cache of other
memory is read before the first launch, and as much passes before any of them is read again. The
columns:
  us         of a launch
  MB, GB/s   that it must read and write, whatever the kernel does, and that at its speed
  % of read  GB/s over what a plain read kernel reaches, measured in the same process
  TFLOP/s    of kernels that multiply for all tokens of a chunk, in place of that share
  regs, spills, shared kB  per thread, bytes per thread, per block
  emit ms    of the compiler, of what came from no cache
  in         the plans that launch it: decode (fused), prompt (chunks of tokens), batch (tokens of
             several sequences), single (a kernel for each operation), weights (tiles of a file's
             blocks)
The tables go to stdout, everything else to stderr. Ctrl-C ends with what was measured so far.
Exit status: 0 done, 1 something failed or --compare found a slower kernel, 2 the command line makes
no sense or there is no GPU, 130 ended by Ctrl-C.)";

// What is chosen by name, until all of it is known.
struct Names {
  std::vector<std::string> models;
  std::vector<std::string> plans;
  std::vector<std::string> routes;
  std::string mix;
  std::string kv;
  double tolerance = 5;  // percent
  SessionOptions session;
};

CLI::Option* list(CLI::Option* option, const char* type) {
  return option->delimiter(',')->allow_extra_args(false)->type_name(type);
}

void add_selection_options(CLI::App& app, Options& options, Names& names) {
  app.add_option("kernel", options.keys, "Keys of kernels, in place of those of the models")
      ->type_name("");
  std::string known;
  for (const Model& model : models())
    known += fmt::format("{}{}", known.empty() ? "" : ", ", model.name);
  list(app.add_option("-m,--model", names.models, "Of " + known + " (default all)"), "NAME,...");
  list(app.add_option("--plan", names.plans,
                      "Of decode, prompt, batch, single, weights (default all)"),
       "PLAN,...");
  app.add_option("-f,--format", names.mix,
                 "Of the weights; q4_k_m: q4_k with q6_k where quantizers have it (default q4_k_m)")
      ->type_name("FORMAT");
  app.add_option("--filter", options.selection.filter,
                 "Only kernels in whose key this regular expression is found")
      ->type_name("REGEX");
  list(app.add_option("-d,--depth", options.depths,
                      "Positions in the KV cache that attention finds (default 4096)"),
       "N,...")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--kv", names.kv, "Format of the KV cache (default f16)")->type_name("FORMAT");
  command_line::add_chunk_option(app, options.selection.plan.chunk);
  app.add_flag("-l,--list", options.list, "Print the keys, and measure nothing");
}

void add_measuring_options(CLI::App& app, Options& options, Names& names) {
  list(app.add_option("--route", names.routes,
                      "nvrtc, llvm, text or all of them, each measured for itself (default: the\n"
                      "first that works for a kernel)"),
       "ROUTE,...");
  app.add_option("-r,--repetitions", options.repetitions.count, "Of each kernel (default 15)")
      ->check(CLI::Range(1, 100000))
      ->type_name("N");
  app.add_option("--launches", options.repetitions.launches,
                 "In a row, of a repetition (default 20)")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  app.add_option("--device", options.device.device, "Ordinal of the GPU (default 0)")
      ->check(CLI::Range(0, 1023))
      ->type_name("N");
  command_line::add_compiler_options(app, options.device.compilers);
  command_line::add_cache_options(app, names.session);
}

void add_output_options(CLI::App& app, Options& options, Names& names) {
  app.add_flag("--csv", options.csv, "CSV on stdout in place of a table");
  app.add_option("--json", options.json, "Write all figures to this file too")->type_name("FILE");
  app.add_option("--from", options.from, "Take the figures from a --json file; measure nothing")
      ->type_name("FILE");
  CLI::Option* compare =
      app.add_option("--compare", options.compare,
                     "Compare with an earlier --json file: a ratio for each kernel")
          ->type_name("FILE");
  app.add_option("--tolerance", names.tolerance,
                 "By how many percent a kernel may be slower than before (default 5)")
      ->needs(compare)
      ->check(CLI::Range(0.0, 1000.0))
      ->type_name("PERCENT");
  app.add_flag("-q,--quiet", options.quiet, "No progress and no notes on stderr");
}

void take_models_and_plans(const Names& names, Selection& selection) {
  for (const std::string& name : names.models)
    selection.models.push_back(command_line::value_or_usage_error("--model", model_by_name(name)));
  if (names.models.empty())
    for (const Model& model : models()) selection.models.push_back(&model);
  for (const std::string& name : names.plans)
    selection.stages.push_back(command_line::value_or_usage_error("--plan", stage_by_name(name)));
  if (names.plans.empty()) selection.stages.assign(std::begin(kStages), std::end(kStages));
  if (!names.mix.empty())
    selection.mix = command_line::value_or_usage_error("--format", mix_by_name(names.mix));
  selection.plan.kv = Format::f16;
  if (!names.kv.empty())
    selection.plan.kv = command_line::value_or_usage_error("--kv", format_by_name(names.kv));
}

void take_routes(const Names& names, Options& options) {
  for (const std::string& name : names.routes) {
    if (name == "all") {
      for (Route route : default_routes()) options.routes.push_back({route});
    } else {
      options.routes.push_back(
          {command_line::value_or_usage_error("--route", route_by_name(name))});
    }
  }
  if (options.routes.empty())
    options.routes.emplace_back(default_routes().begin(), default_routes().end());
}

void check_options(Names& names, Options& options) {
  take_models_and_plans(names, options.selection);
  take_routes(names, options);
  const int deepest = *std::max_element(options.depths.begin(), options.depths.end());
  options.selection.plan.context = deepest + std::max(1, options.selection.plan.chunk);
  options.tolerance = names.tolerance / 100;
  options.device.disk_cache = names.session.disk_cache;
  options.device.cache_directory = names.session.cache_directory;
  if (options.list && !options.from.empty())
    throw CLI::ValidationError("--list prints kernels, and --from has none to be measured");
}

}  // namespace

std::optional<int> parse_options(int argc, const char* const* argv, Options& options) {
  CLI::App app(kDescription, "bench_kernels");
  app.footer(kFooter);
  app.set_version_flag("--version", command_line::version("bench_kernels"));
  Names names;
  add_selection_options(app, options, names);
  add_measuring_options(app, options, names);
  add_output_options(app, options, names);
  app.callback([&] { check_options(names, options); });
  return command_line::parse(app, argc, argv);
}

}  // namespace lathe::bench::kernels
