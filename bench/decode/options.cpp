// Owns the options of bench_decode, their help, and what may not go together.
#include "bench/decode/options.h"

#include <fmt/format.h>

#include <algorithm>

#include "examples/command_line.h"
#include "examples/shared_options.h"

namespace lathe::bench {

namespace {

constexpr const char* kDescription =
    "Measures how fast a model decodes: tokens/s, share of the memory's read rate, energy, set-up.";

constexpr const char* kFooter = R"(Examples:
  bench_decode -m model.gguf
  bench_decode -m model.gguf -n 128 -d 0,4096,32768 -r 10
  bench_decode -m a.gguf -m b.gguf --executor graph,eager --kv f16,f32 --output csv >all.csv
  bench_decode -m model.gguf -n 0 -p 512,2048
  bench_decode -m model.gguf -n 64 --executor cpu --threads 8

Side by side with llama.cpp, or with another build of this program, in turns:
  bench_decode -m model.gguf -d 0,4096 --peer 'llama-bench -m {model} -n {gen} -p {prompt} \
      -d {depth} -r {reps} -o json -fa 1'
  bench_decode -m model.gguf --peer 'before/bench_decode -m {model} -n {gen} -p {prompt} \
      -d {depth} -r {reps} --output json'
A peer prints records as llama-bench does (JSON array or lines), or lines "tokens/s: NUMBER".

Tests are named as llama-bench names them: tg128 generates 128 tokens, pp512 reads a prompt of 512,
@ d4096 means behind 4096 positions. Every repetition starts from there again; one more before them
warms up and is not counted (of a repetition longer than 2 s, the first 16 tokens). The columns:
  tokens/s    mean and standard deviation of the repetitions; median, min, max in CSV and JSON
  ms/token    1000 over the mean
  GB/s        bytes that had to be read once per token (weights, and the KV cache at the mean of
              the run's positions) at that speed; of generation only
  % of read   their share of what a plain read kernel reaches, measured in the same process
  J/token, W  of the whole card, from the driver's energy counter; not measured where there is
              none, or where all repetitions together took less than 0.5 s
The table goes to stdout, everything else to stderr. Ctrl-C ends with what was measured so far.
Exit status: 0 done, 1 something failed, 2 the command line makes no sense, 130 ended by Ctrl-C.)";

constexpr int kMaxPositions = 1 << 24;
constexpr int kDefaultRounds = 2;

// What is chosen by name, until all of it is known.
struct Names {
  std::vector<std::string> executors;
  std::vector<std::string> kv;
  std::string output;
};

// The library alone knows which executors there are.
std::string known_executors() {
  const Result<ExecutorKind> none = executor_by_name("");
  if (none) return "";
  for (const Detail& detail : none.error().details) {
    if (detail.name == "known") return detail.value;
  }
  return "";
}

// Puts the options that `add` adds under a heading of their own.
template <typename Add>
void group(CLI::App& app, const char* heading, Add add) {
  const std::size_t before = app.get_options().size();
  add();
  const std::vector<CLI::Option*> options = app.get_options();
  for (std::size_t i = before; i < options.size(); ++i) options[i]->group(heading);
}

CLI::Option* list(CLI::Option* option, const char* type) {
  return option->delimiter(',')->allow_extra_args(false)->type_name(type);
}

void add_matrix_options(CLI::App& app, Options& options, Names& names) {
  app.add_option("-m,--model", options.models, "A GGUF or P64 file; repeat it for several")
      ->required()
      ->allow_extra_args(false)
      ->type_name("FILE");
  const CLI::Range lengths(0, kMaxPositions);
  list(app.add_option("-n,--gen", options.gens, "Tokens to generate; 0: none (default 128)"),
       "N,...")
      ->check(lengths);
  list(app.add_option("-p,--prompt", options.prompts, "Tokens of a prompt to read (default none)"),
       "N,...")
      ->check(lengths);
  list(app.add_option("-d,--depth", options.depths,
                      "Positions in the KV cache before a test starts (default 0)"),
       "N,...")
      ->check(lengths);
  list(app.add_option("--executor", names.executors, "Of " + known_executors() + " (default auto)"),
       "KIND,...");
  list(app.add_option("--kv", names.kv, "Formats of the KV cache (default f16)"), "FORMAT,...");
}

void add_measurement_options(CLI::App& app, Options& options, Names& names) {
  app.add_option("-r,--repetitions", options.repetitions, "Of each test (default 5)")
      ->check(CLI::Range(1, 100000))
      ->type_name("N");
  CLI::Option* peer =
      app.add_option("--peer", options.peer,
                     "Another program's command line, for /bin/sh, with {model}, {gen},\n"
                     "{prompt}, {depth} and {reps}: run in turn with Lathe on each test")
          ->type_name("COMMAND");
  app.add_option("--rounds", options.rounds,
                 "Turns of the peer and Lathe, each of all repetitions (default 2)")
      ->needs(peer)
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  app.add_flag("--cold-build", options.cold_build,
               "Open each session once more, without the disk cache, to time that\nbuild too");
  app.add_option("--output", names.output, "md, csv or json (default md)")
      ->check(CLI::IsMember({"md", "csv", "json"}))
      ->type_name("FORM");
  app.add_flag("-q,--quiet", options.quiet, "No progress and no notes on stderr");
}

void add_execution_options(CLI::App& app, Options& options) {
  app.add_option("--context", options.context,
                 "Positions of the KV cache (default: depth and the longest test there)")
      ->check(CLI::Range(1, kMaxPositions))
      ->type_name("N");
  app.add_option("--device", options.session.device, "Ordinal of the GPU (default 0)")
      ->check(CLI::Range(0, 1023))
      ->type_name("N");
  command_line::add_chunk_option(app, options.session.plan.chunk);
  command_line::add_threads_option(app, options.session.threads);
  command_line::add_route_option(app, options.session.routes);
  command_line::add_compiler_options(app, options.session.compilers);
  command_line::add_cache_options(app, options.session);
}

int greatest(const std::vector<int>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

void take_names(const Names& names, Options& options) {
  if (!names.executors.empty()) options.executors.clear();
  for (const std::string& name : names.executors) {
    const Result<ExecutorKind> kind = executor_by_name(name);
    if (!kind)
      throw CLI::ValidationError("--executor", fmt::format("there is no executor '{}'; known: {}",
                                                           name, known_executors()));
    options.executors.push_back(*kind);
  }
  if (!names.kv.empty()) options.kv.clear();
  for (const std::string& name : names.kv)
    options.kv.push_back(command_line::value_or_usage_error("--kv", format_by_name(name)));
  if (names.output == "csv") options.output = Output::csv;
  if (names.output == "json") options.output = Output::json;
}

void check_options(const CLI::App& app, const Names& names, Options& options) {
  take_names(names, options);
  if (!options.peer.empty() && app.count("--rounds") == 0) options.rounds = kDefaultRounds;
  const int longest = std::max(greatest(options.prompts), greatest(options.gens));
  if (longest == 0)
    throw CLI::ValidationError("there is nothing to measure: -n and -p ask for no tokens");
  const int needed = greatest(options.depths) + longest;
  if (options.context > 0 && options.context < needed)
    throw CLI::ValidationError(
        "--context", fmt::format("{} positions are too few: the deepest and longest test needs {}",
                                 options.context, needed));
}

}  // namespace

std::optional<int> parse_options(int argc, const char* const* argv, Options& options) {
  CLI::App app(kDescription, "bench_decode");
  app.footer(kFooter);
  app.set_version_flag("--version", command_line::version("bench_decode"));
  Names names;
  add_matrix_options(app, options, names);
  group(app, "Measuring and output", [&] { add_measurement_options(app, options, names); });
  group(app, "Execution", [&] { add_execution_options(app, options); });
  app.callback([&] { check_options(app, names, options); });
  return command_line::parse(app, argc, argv);
}

}  // namespace lathe::bench
