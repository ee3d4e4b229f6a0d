// decode: a GGUF file and a prompt in, text out, and a line of figures.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>

#include "examples/command_line.h"
#include "examples/decode/choices.h"
#include "examples/decode/generate.h"
#include "examples/decode/open_session.h"
#include "examples/decode/options.h"
#include "examples/decode/output.h"
#include "examples/decode/parity.h"
#include "examples/decode/profile.h"
#include "examples/decode/prompt.h"
#include "examples/decode/summary.h"
#include "examples/progress_line.h"

namespace lathe::decode {

namespace {

using Clock = std::chrono::steady_clock;

OutputForm output_form(const Options& options) {
  if (options.json) return OutputForm::nothing;
  return options.token_mode() ? OutputForm::ids : OutputForm::text;
}

Result<void> tell(const Summary& summary, const Options& options) {
  if (options.json) LATHE_TRY(command_line::print(json(summary)));
  if (!options.quiet) command_line::say(fmt::format("{}\n", line(summary)));
  return {};
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr int kTokensAhead = 16;

// How far to run ahead unless told. A recorded run wants its logits, and the CPU gains nothing.
int tokens_ahead(const Options& options, const Session& session) {
  if (options.ahead > 0) return options.ahead;
  const bool recorded = options.json || !options.logits_file.empty();
  const bool on_cpu = session.report().executor == executor_name(ExecutorKind::cpu);
  return recorded || on_cpu ? 1 : kTokensAhead;
}

// Generates, with the answer going to stdout as it comes.
Result<Generation> answer(Session& session, const Prompt& prompt, const Options& options, int ahead,
                          command_line::ProgressLine& progress, Output& output,
                          LogitsRecord& record) {
  const GenerateOptions rules{
      .prompt = prompt.ids,
      .max_tokens = options.max_tokens,
      .sampling = options.sampling,
      .ahead = ahead,
      .is_stop = [&](std::int32_t id) { return prompt.tokenizer && prompt.tokenizer->is_stop(id); },
      .stops = prompt.tokenizer ? prompt.tokenizer->stops(StopTokens::kMost)
                                : std::vector<std::int32_t>{},
      .on_token =
          [&](std::int32_t id) {
            progress.clear();
            return output.token(id);
          },
      .interrupted = command_line::interrupted,
      .progress = [&](std::string_view what, std::int64_t done,
                      std::int64_t total) { progress.show(what, done, total); }};
  Result<Generation> generation = generate(session, rules, record);
  progress.clear();
  // What came before an error is worth a whole line too.
  LATHE_TRY(output.finish());
  return generation;
}

// The exit code.
Result<int> run(const Options& options, Clock::time_point start) {
  LATHE_ASSIGN(const std::shared_ptr<const GgufFile> file, GgufFile::open(options.model));
  // What the file and the options get wrong is told before the search for a GPU begins.
  LATHE_ASSIGN(const Plan plan, build_plan(*file, options.session.plan));
  if (options.plan) {
    LATHE_TRY(command_line::print(options.json ? plan.to_json() + "\n" : plan.to_text()));
    return command_line::kSuccess;
  }
  if (options.explain) {
    LATHE_ASSIGN(const std::vector<Selected> choices, explain_session(*file, options));
    LATHE_TRY(command_line::print(options.json ? choices_json(choices) : choices_text(choices)));
    return command_line::kSuccess;
  }
  LATHE_ASSIGN(const Prompt prompt, make_prompt(*file, options));
  LATHE_TRY(check_prompt(prompt, plan));
  if (options.parity) {
    LATHE_ASSIGN(const bool good, is_on_par(file, prompt, options));
    return good ? command_line::kSuccess : command_line::kFailure;
  }
  command_line::ProgressLine progress(!options.quiet);
  LATHE_ASSIGN(OpenSession open, open_session(file, options, progress));
  if (options.profile) {
    command_line::note_interrupt();
    LATHE_TRY(profile(*open.session, prompt, options));
    return command_line::interrupted() ? command_line::kInterrupted : command_line::kSuccess;
  }
  // Last of what can fail: a file that was there is only overwritten by a run that gets going.
  LATHE_ASSIGN(LogitsRecord record, LogitsRecord::create(options.logits_file, options.model));

  command_line::note_interrupt();
  const int ahead = tokens_ahead(options, *open.session);
  Summary summary;
  summary.first_token_seconds = seconds_since(start);
  Output output(output_form(options), prompt.tokenizer.get());
  LATHE_ASSIGN(summary.generation,
               answer(*open.session, prompt, options, ahead, progress, output, record));
  LATHE_TRY(record.close());

  const bool was_interrupted = summary.generation.ending == Ending::interrupted;
  if (!was_interrupted) {
    LATHE_ASSIGN(summary.read_rate, open.session->read_rate());
  }
  summary.model = options.model;
  summary.prompt = prompt.ids;
  summary.text = output.text();
  if (ahead == 1) summary.logits_hash = record.digest();
  summary.open_seconds = open.seconds;
  summary.first_token_seconds += summary.generation.prompt_seconds;
  summary.report = open.session->report();
  summary.notes = std::move(open.notes);
  LATHE_TRY(tell(summary, options));
  return was_interrupted ? command_line::kInterrupted : command_line::kSuccess;
}

}  // namespace

}  // namespace lathe::decode

int main(int argc, char** argv) {
  const auto start = std::chrono::steady_clock::now();
  lathe::command_line::open_standard_streams();
  lathe::decode::Options options;
  if (const auto status = lathe::decode::parse_options(argc, argv, options)) return *status;
  const lathe::Result<int> status = lathe::decode::run(options, start);
  if (status) return *status;
  lathe::command_line::print_error("decode", status.error());
  return lathe::command_line::kFailure;
}
