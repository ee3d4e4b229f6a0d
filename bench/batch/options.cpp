// Owns the options of bench_batch and their help.
#include "bench/batch/options.h"

#include <algorithm>

#include "examples/command_line.h"
#include "examples/shared_options.h"

namespace lathe::bench::batch {

namespace {

constexpr const char* kDescription =
    "Measures how fast several sequences of a model decode together, and one with drafts.";

constexpr const char* kFooter = R"(Examples:
  bench_batch -m model.gguf
  bench_batch -m model.gguf -b 1,2,4,8,16,32 -d 1024 --kv f16
  bench_batch -m model.gguf -b 8 --drafts 0,3,7,15

Rows of the table: "session" is one sequence by the fastest executor of a session, to compare with;
"batch of 8" are eight sequences, each of which gets a token in every step; "verify 8" is a step with
eight tokens in a row of one sequence, as drafts are verified, all of them taken back; "lookup of 7"
generates with up to seven drafts by look-up behind a prompt that repeats itself. Columns: tokens/s of
all sequences, the time of a step, both relative to the session's, and of drafts the share that was
accepted. Medians of the repetitions; one more before them is not counted.)";

CLI::Option* list(CLI::Option* option) {
  return option->delimiter(',')->allow_extra_args(false)->type_name("N,...");
}

}  // namespace

std::optional<int> parse_options(int argc, const char* const* argv, Options& options) {
  CLI::App app(kDescription, "bench_batch");
  app.footer(kFooter);
  std::string kv = "f16", output = "md";
  app.add_option("-m,--model", options.model, "A GGUF or P64 file")->required()->type_name("FILE");
  list(app.add_option("-b,--batch", options.sequences, "Sequences (default 1,8,32)"))
      ->check(CLI::Range(1, kMostBatchRows));
  list(app.add_option("--drafts", options.drafts, "Drafts of a step, at most (default 7)"))
      ->check(CLI::Range(0, kMostBatchRows - 1));
  app.add_option("-n,--gen", options.gen, "Tokens that each sequence generates (default 64)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  app.add_option("-d,--depth", options.depth, "Positions before them (default 128)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  app.add_option("-r,--repetitions", options.repetitions, "Of each row (default 3)")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  app.add_option("--kv", kv, "Format of the KV cache (default f16)")->type_name("FORMAT");
  app.add_option("--output", output, "md or csv (default md)")
      ->check(CLI::IsMember({"md", "csv"}))
      ->type_name("FORM");
  app.add_flag("-q,--quiet", options.quiet, "No progress and no notes on stderr");
  SessionOptions& session = options.batch.session;
  app.add_option("--device", session.device, "Ordinal of the GPU (default 0)")
      ->check(CLI::Range(0, 1023))
      ->type_name("N");
  command_line::add_route_option(app, session.routes);
  command_line::add_compiler_options(app, session.compilers);
  command_line::add_cache_options(app, session);
  app.callback([&] {
    session.plan.kv = command_line::value_or_usage_error("--kv", format_by_name(kv));
    options.csv = output == "csv";
    session.executor = ExecutorKind::automatic;
    session.plan.context = options.depth + options.gen + kMostBatchRows;
    options.batch.sequences = *std::max_element(options.sequences.begin(), options.sequences.end());
    const int drafts = *std::max_element(options.drafts.begin(), options.drafts.end());
    options.batch.rows = std::max(options.batch.sequences, drafts + 1);
  });
  return command_line::parse(app, argc, argv);
}

}  // namespace lathe::bench::batch
