// Owns the options of bench_tune and their help.
#include "bench/tune/options.h"

#include "examples/command_line.h"
#include "examples/shared_options.h"

namespace lathe::bench::tune {

namespace {

constexpr const char* kDescription =
    "Measures with which tuning models decode fastest on this GPU, and writes the table of it.";

constexpr const char* kFooter = R"(Examples:
  bench_tune -m model.gguf
  bench_tune -m 8b.gguf -m 1b.gguf --table tunings.txt
  LATHE_TUNING_TABLE=tunings.txt decode -m 8b.gguf --explain

The rules are measured first, then each executor, then each choice that matters to the fastest of
them, each value beside the best so far. What is left at the end is measured once more between the
rules and the rules, and is a row of the table where it is faster by 1 % and more and no repetition
was as slow as the rules' median. A row is for a kind of GPU and all models of the same family, sizes
and format.

The table goes to stdout, or into --table, where rows of other GPUs and models stay; everything else
goes to stderr. Nobody else should use the GPU meanwhile. A session
is opened for each: 14 or so for a model, 18 where `graph` is the faster.)";

}  // namespace

std::optional<int> parse_options(int argc, const char* const* argv, Options& options) {
  CLI::App app(kDescription, "bench_tune");
  app.footer(kFooter);
  app.set_version_flag("--version", command_line::version("bench_tune"));
  std::string kv = "f16";
  app.add_option("-m,--model", options.models, "A GGUF or P64 file; repeat it for several")
      ->required()
      ->allow_extra_args(false)
      ->type_name("FILE");
  app.add_option("-n,--gen", options.gen, "Tokens that a repetition generates (default 128)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  app.add_option("-d,--depth", options.depth, "Positions before them (default 0)")
      ->check(CLI::Range(0, 1 << 20))
      ->type_name("N");
  app.add_option("-r,--repetitions", options.repetitions, "Of each tuning (default 5)")
      ->check(CLI::Range(2, 1000))
      ->type_name("N");
  app.add_option("--table", options.table, "Put the rows into this file, made where there is none")
      ->type_name("FILE");
  app.add_option("--kv", kv, "Format of the KV cache (default f16)")->type_name("FORMAT");
  app.add_flag("-q,--quiet", options.quiet, "No progress and no trials on stderr");
  app.add_option("--device", options.session.device, "Ordinal of the GPU (default 0)")
      ->check(CLI::Range(0, 1023))
      ->type_name("N");
  command_line::add_route_option(app, options.session.routes);
  command_line::add_compiler_options(app, options.session.compilers);
  command_line::add_cache_options(app, options.session);
  app.callback([&] {
    PlanOptions& plan = options.session.plan;
    plan.kv = command_line::value_or_usage_error("--kv", format_by_name(kv));
    plan.context = options.depth + options.gen;
    options.session.executor = ExecutorKind::automatic;
  });
  return command_line::parse(app, argc, argv);
}

}  // namespace lathe::bench::tune
