// Owns the options of decode, their help, and what may not go together.
#include "examples/decode/options.h"

#include <fmt/format.h>

#include <charconv>
#include <span>
#include <string_view>

#include "examples/command_line.h"
#include "examples/shared_options.h"

namespace lathe::decode {

namespace {

constexpr const char* kDescription =
    "Continues a prompt with a language model from a GGUF or P64 file, on an NVIDIA GPU or on the "
    "CPU.";

constexpr const char* kFooter = R"(Examples:
  decode -m model.gguf "What is the capital of France?"
  decode -m model.gguf -p - <prompt.txt --temperature 0.7 --top-p 0.9 --seed 7
  decode -m model.gguf --raw "Once upon a time" -n 64
  decode -m model.gguf --tokens 1,450,7483 -n 16 --json
  decode -m model.gguf --explain

The answer goes to stdout, everything else to stderr. The last line there says how fast it went:
  tokens/s    of all tokens after the first, from wall time less what --logits and the hash take
  GB/s        bytes that had to be read once (weights, and the KV cache so far) over that time,
              and on a GPU their share of what a plain read kernel reaches on it
  logits      XXH3-64 of the logits (f32, in order) of the last prompt position and of every
              generated position that was fed; the same on every run of the same kernels
Ctrl-C ends the answer there, with that last line; a second one ends the program at once.
Exit status: 0 done, 1 failed, 2 the command line makes no sense, 130 ended by Ctrl-C.)";

// What is chosen by name, until all of it is known.
struct Names {
  std::string device = "auto";
  std::string executor;
  std::string positional_prompt;
};

std::vector<std::int32_t> parse_ids(std::string_view list) {
  std::vector<std::int32_t> ids;
  for (std::size_t comma = 0; comma != std::string_view::npos;) {
    comma = list.find(',');
    const std::string_view word = list.substr(0, comma);
    if (comma != std::string_view::npos) list.remove_prefix(comma + 1);
    std::int32_t id = -1;
    const auto end = std::from_chars(word.data(), word.data() + word.size(), id);
    if (end.ec != std::errc() || end.ptr != word.data() + word.size() || id < 0)
      throw CLI::ValidationError("--tokens", fmt::format("'{}' is not a token id", word));
    ids.push_back(id);
  }
  return ids;
}

void add_prompt_options(CLI::App& app, Options& options, Names& names) {
  CLI::Option* flag =
      app.add_option("-p,--prompt", options.prompt, "The prompt; - reads stdin")->type_name("TEXT");
  CLI::Option* positional =
      app.add_option("prompt", names.positional_prompt, "The same without a flag")->type_name("");
  CLI::Option* tokens =
      app.add_option_function<std::string>(
             "--tokens", [&](const std::string& list) { options.tokens = parse_ids(list); },
             "Token ids instead of a prompt, fed as they are; ids come out")
          ->type_name("ID,...");
  CLI::Option* system =
      app.add_option("--system", options.system, "A system message before the prompt")
          ->type_name("TEXT");
  CLI::Option* raw =
      app.add_flag("--raw", options.raw, "Feed the prompt alone, not as a turn of a conversation");
  flag->excludes(positional)->excludes(tokens);
  positional->excludes(tokens);
  system->excludes(raw)->excludes(tokens);
  for (CLI::Option* option : {flag, tokens, system, raw}) option->group("Prompt");
}

void add_sampling_options(CLI::App& app, Options& options) {
  Sampling& sampling = options.sampling;
  std::vector<CLI::Option*> added = {
      app.add_option("-n,--max-tokens", options.max_tokens,
                     "Generate at most so many (default 256; -1: until the context is full)")
          ->check(CLI::Range(-1, 1 << 30))
          ->type_name("N"),
      app.add_option("--temperature", sampling.temperature,
                     "0 takes the likeliest token, 1 draws as the model says (default 0)")
          ->type_name("T"),
      app.add_option("--top-k", sampling.top_k,
                     "Draw among the K likeliest, at most 64 (default 0: 64)")
          ->type_name("K"),
      app.add_option("--top-p", sampling.top_p,
                     "Draw among the likeliest that together reach P (default 1: no limit)")
          ->type_name("P"),
      app.add_option("--min-p", sampling.min_p,
                     "Drop tokens less likely than P times the likeliest (default 0: none)")
          ->type_name("P"),
      app.add_option("--repeat-penalty", sampling.repeat_penalty,
                     "Above 1 makes the last 64 tokens less likely (default 1)")
          ->type_name("R"),
      app.add_option("--seed", sampling.seed, "Of the random numbers (default 0)")->type_name("N")};
  for (CLI::Option* option : added) option->group("Generation");
}

void add_execution_options(CLI::App& app, Options& options, Names& names) {
  app.add_option("--device", names.device,
                 "cuda, cpu, or auto: the CPU, with a word on stderr, where no GPU can be used")
      ->check(CLI::IsMember({"auto", "cuda", "cpu"}))
      ->type_name("DEVICE");
  app.add_option(
         "--executor", names.executor,
         "mega (one kernel that stays for whole tokens; a plan with --fusion full, on sm_90 or\n"
         "later), graph (recorded once, replayed), eager (a launch per step), cpu, or auto: mega\n"
         "where it applies, else graph (default auto)")
      ->type_name("KIND");
  command_line::add_route_option(app, options.session.routes);
  command_line::add_compiler_options(app, options.session.compilers);
  command_line::add_plan_options(app, options.session.plan);
  command_line::add_threads_option(app, options.session.threads);
  app.add_option("--ahead", options.ahead,
                 "Tokens that a GPU chooses without the host in between: faster, but there is no\n"
                 "hash of the logits (default 16; 1 with --json or --logits)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command_line::add_cache_options(app, options.session);
}

void add_output_options(CLI::App& app, Options& options) {
  std::vector<CLI::Option*> added = {
      app.add_flag(
          "--json", options.json,
          "Print one JSON object at the end: ids, text, figures; with --plan, the plan; with\n"
          "--explain, the choices"),
      app.add_flag("-q,--quiet", options.quiet, "No progress, notes or last line on stderr"),
      app.add_option("--logits", options.logits_file,
                     "Write the logits there: f32, one vocabulary for each position fed")
          ->type_name("FILE"),
      app.add_flag("--plan", options.plan, "Print the kernels of a token, and end"),
      app.add_flag("--explain", options.explain,
                   "Print what is chosen for this model and GPU, and why, and end"),
      app.add_flag("--profile", options.profile,
                   "Print what each kind of step takes of a token, each launched by itself (the\n"
                   "executors eager, which is its default, and cpu)"),
      app.add_flag(
          "--parity", options.parity,
          "Print how far each layer and the logits are from the CPU's in double precision,\n"
          "for the prompt's tokens; exit status 1 where one is too far")};
  for (CLI::Option* option : added) option->group("Output");
  // Of the last four each is all that the program does.
  const auto tasks = std::span(added).last(4);
  for (CLI::Option* task : tasks)
    for (CLI::Option* other : tasks)
      if (other != task) task->excludes(other);
}

// The executor whose steps can be timed, where the choice was left open.
void choose_timed_executor(const Names& names, Options& options) {
  ExecutorKind& kind = options.session.executor;
  if (kind == ExecutorKind::automatic) kind = ExecutorKind::eager;
  if (kind != ExecutorKind::eager && kind != ExecutorKind::cpu)
    throw CLI::ValidationError("--profile",
                               "the executor " + names.executor + " has no launch for each step");
  options.session.time_steps = true;
}

// A named executor is never replaced by another; auto alone, which is the default, may fall back.
void choose_executor(const Names& names, Options& options) {
  ExecutorKind& kind = options.session.executor;
  kind = ExecutorKind::automatic;
  if (!names.executor.empty())
    kind = command_line::value_or_usage_error("--executor", executor_by_name(names.executor));
  const bool automatic = kind == ExecutorKind::automatic;
  if (automatic && names.device == "cpu") kind = ExecutorKind::cpu;
  if (names.device == "cpu" && kind != ExecutorKind::cpu)
    throw CLI::ValidationError("--executor", names.executor + " needs a GPU, but --device is cpu");
  if (names.device == "cuda" && kind == ExecutorKind::cpu)
    throw CLI::ValidationError("--executor", "cpu uses no GPU, but --device is cuda");
  options.may_fall_back = names.device == "auto" && automatic;
}

void check_options(const CLI::App& app, const Names& names, Options& options) {
  if (app.count("prompt") > 0) options.prompt = names.positional_prompt;
  choose_executor(names, options);
  if (options.profile) choose_timed_executor(names, options);
  if (options.parity && options.session.executor == ExecutorKind::cpu)
    throw CLI::ValidationError("--parity", "the CPU is what others are compared with");
  if (const Result<void> checked = check_sampling(options.sampling); !checked)
    throw CLI::ValidationError(checked.error().message);
  if (options.ahead > 1 && !options.logits_file.empty())
    throw CLI::ValidationError("--ahead", "it cannot go with --logits");
  const bool has_prompt = app.count("--prompt") + app.count("prompt") + app.count("--tokens") > 0;
  if (!options.plan && !options.explain && !has_prompt)
    throw CLI::ValidationError("there is nothing to continue: give a prompt, or --tokens");
}

}  // namespace

std::optional<int> parse_options(int argc, const char* const* argv, Options& options) {
  CLI::App app(kDescription, "decode");
  app.footer(kFooter);
  app.set_version_flag("--version", command_line::version("decode"));
  Names names;
  app.add_option("-m,--model", options.model, "The model, a GGUF or P64 file")
      ->required()
      ->type_name("FILE");
  add_prompt_options(app, options, names);
  add_sampling_options(app, options);
  add_execution_options(app, options, names);
  add_output_options(app, options);
  app.callback([&] { check_options(app, names, options); });
  return command_line::parse(app, argc, argv);
}

}  // namespace lathe::decode
